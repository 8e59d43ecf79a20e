"""A conversation in a terminal."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Literal

from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory
from prompt_toolkit.patch_stdout import patch_stdout

from everturn.budgets import BudgetVerdict
from everturn.client import Client
from everturn.errors import UsageError
from everturn.events import Event
from everturn.inputs import checked_text
from everturn.schedules import scheduled
from everturn.session import Mode
from everturn.views import ApprovalView, BudgetAskView
from everturn_activities.cron import coming
from everturn_workers.cli.completing import Names
from everturn_workers.cli.deciding import (
    answer_to,
    chosen,
    how_to_decide,
    lines,
    told,
    verdict_from,
)
from everturn_workers.cli.follow import beginning
from everturn_workers.cli.runtime import opened, reached_or_started
from everturn_workers.cli.show import Page, consoles
from everturn_workers.home import prepare
from everturn_workers.settings import Settings

HELP = (
    "What you type while a turn works steers it: it joins at the next step. /queue TEXT waits for"
    " the turn's end, /interrupt TEXT ends it and begins the next, /rollback TEXT also takes back"
    " what it said. /NAME ARGUMENTS asks for a skill or a prompt of an MCP server, whose resources"
    " are named by @SERVER:URI; @AGENT TEXT asks another agent; Tab completes"
    " them. /approve, /always and /deny REASON answer a call that waits for leave, /answer TEXT"
    " what the agent asks, /raise LIMIT and /deny what the turn asks about its budget. /cancel ends"
    " the turn, /quit the chat;"
    " Ctrl-C leaves the turn working."
)
_COMMANDS = {
    "/queue": "after the turn",
    "/interrupt": "in the turn's place",
    "/rollback": "as if the turn had not been",
    "/approve": "let the call that waits run",
    "/always": "and every such call of the session",
    "/answer": "tell the agent what it asks",
    "/raise": "raise the budget asked about",
    "/deny": "refuse the call, or end the turn for its budget",
    "/cancel": "end the turn",
    "/help": "all of this",
    "/quit": "leave",
}
_MODES: dict[str, Mode] = {"/queue": "queue", "/interrupt": "interrupt", "/rollback": "rollback"}


async def talk(
    settings: Settings, session: str, workspace: Path | None, say: Callable[[str], None]
) -> Literal["idle", "works", "ends"]:
    """Talk until the person leaves, and tell what became of the turn.

    It `works` on, or `ends` with the runtime that was started for the chat.
    """
    async with reached_or_started(settings, say) as (client, started):
        view = await opened(client, settings, session, workspace)
        conversation = _Conversation(client, session, settings)
        conversation.working = view.status != "idle"
        say(f"Session {session}, agent {settings.agent or view.agent}. {HELP}")
        for schedule in await client.schedules.list(session):
            say(f"{scheduled(schedule)} {coming(schedule)}")
        # A turn under way is shown from its beginning; what was before is for `attach`.
        first = view.turn if view.status == "running" else view.turn + 1
        start = await beginning(client, view, first)
        names = Names(await conversation.names())
        conversation.learn = names.learn
        prompt: PromptSession[str] = PromptSession(
            history=_history(settings.home), completer=names, complete_while_typing=False
        )
        with patch_stdout(raw=True):
            watching = asyncio.create_task(conversation.watch(first, start, say))
            asking = asyncio.create_task(conversation.ask(prompt, say))
            try:
                await asyncio.wait({asking, watching}, return_when=asyncio.FIRST_COMPLETED)
                # A watcher ends only by the error that it raises.
                await (watching if watching.done() else asking)
                return "idle" if not conversation.working else "ends" if started else "works"
            finally:
                for task in (asking, watching):
                    task.cancel()
                await asyncio.gather(asking, watching, return_exceptions=True)


class _Conversation:
    def __init__(self, client: Client, session: str, settings: Settings) -> None:
        self._client = client
        self._session = session
        self._settings = settings
        self._agents: frozenset[str] = frozenset()
        self._shown: set[int] = set()
        self.working = False
        self.learn: Callable[[Mapping[str, str]], None] = lambda names: None

    async def names(self) -> dict[str, str]:
        """What a message may begin with, and what that is for: @AGENT, /COMMAND and /SKILL."""
        try:
            agents = (await self._client.agents(self._session)).agents
            asked_for = await self._asked_for()
        except UsageError:
            # Of what is wrong with the workspace the turn itself will tell.
            return _COMMANDS
        self._agents = frozenset(agent.name for agent in agents)
        return {f"@{one.name}": one.description for one in agents} | _COMMANDS | asked_for

    async def _asked_for(self) -> dict[str, str]:
        """What a person asks for by a slash: skills, and prompts of servers once they are known."""
        page = await self._client.skills(self._session)
        skills = {f"/{skill.name}": skill.description for skill in page.skills if skill.for_people}
        return skills | {f"/{prompt.name}": prompt.description for prompt in page.prompts}

    async def watch(self, first: int, start: str, say: Callable[[str], None]) -> None:
        # Made here, where stdout is already the one that keeps clear of the prompt.
        page = Page(*consoles(), whole_lines=True)
        async with aclosing(self._client.events(self._session, start)) as events:
            async for event in events:
                if 0 < event.turn < first:
                    continue
                if event.type == "turn_started":
                    self.working = True
                page.event(event)
                if event.type == "approval_asked":
                    await self._show_question(event, say)
                if event.type == "executor_event" and event.body["event"] == "approval_asked":
                    await self._show_executors_question(event, say)
                if event.type == "budget_asked":
                    say(
                        f"The turn waits for an answer: /raise LIMIT, in {event.body['unit']},"
                        " or /deny."
                    )
                if event.type == "turn_finished":
                    self.working = False
                    if event.turn == 1:
                        # Only now is it known which prompts there are.
                        self.learn(await self.names())

    async def _show_executors_question(self, event: Event, say: Callable[[str], None]) -> None:
        """What an executor asks is answered in a shell, by the executor's name."""
        for one in await self._client.approvals(event.body["executor"]):
            if one.approval == event.body["told"]["approval"]:
                say(how_to_decide(one))

    async def ask(self, prompt: "PromptSession[str]", say: Callable[[str], None]) -> None:
        while True:
            try:
                text = (await prompt.prompt_async("> ")).strip()
            except (EOFError, KeyboardInterrupt):
                return
            if text == "/quit":
                return
            try:
                await self._heed(text, say)
            except UsageError as error:
                say(str(error))

    async def _heed(self, text: str, say: Callable[[str], None]) -> None:
        if text == "/cancel":
            accepted = await self._client.cancel(self._session)
            if accepted.status == "too_late":
                say("No turn is open.")
            return
        command, _, rest = text.partition(" ")
        if command in ("/approve", "/always", "/deny", "/raise", "/answer"):
            await self._answer(command, rest.strip(), say)
        elif not text.startswith("/") and text and (asked := await self._question()) is not None:
            await self._decide(asked, "/answer", text, say)
        elif command in _MODES and rest:
            await self._send(rest.strip(), _MODES[command], say)
        elif text == "/help":
            await self._help(say)
        elif text.startswith("/") and " " not in text and "/" not in text[1:]:
            skills = (await self._client.skills(self._session)).skills
            if text.startswith("/mcp_") or any(skill.name == text[1:] for skill in skills):
                await self._send(text, "steer" if self.working else "queue", say)
            else:
                await self._help(say)
        elif command[:1] == "@" and command[1:] in self._agents and rest:
            # Another agent has a turn of its own.
            await self._send(rest.strip(), "queue", say, command[1:])
        elif text:
            await self._send(text, "steer" if self.working else "queue", say)

    async def _answer(self, command: str, rest: str, say: Callable[[str], None]) -> None:
        """Answer a call that waits for leave, else what the turn asks about a budget. A turn
        never asks both at once."""
        waiting = await self._client.approvals(self._session)
        asked = (await self._client.session(self._session)).asked
        if command == "/raise" or (command == "/deny" and not waiting):
            if not asked:
                say("The turn asks nothing about a budget; 'everturn budget' raises one anyway.")
            else:
                await self._answer_budget(asked[0], command, rest)
        else:
            number, _, reason = rest.partition(" ")
            # A bare number may be an answer itself.
            if not number.isdecimal() or (command == "/answer" and not reason.strip()):
                number, reason = "", rest
            named = int(number) if number else None
            await self._decide(chosen(waiting, named, self._session), command, reason, say)

    async def _question(self) -> ApprovalView | None:
        """The one question that was shown and waits: what is typed next answers it."""
        if not self._shown:
            return None
        waiting = [
            one
            for one in await self._client.approvals(self._session)
            if one.kind == "question" and one.approval in self._shown
        ]
        return waiting[0] if len(waiting) == 1 else None

    async def _answer_budget(self, question: BudgetAskView, command: str, limit: str) -> None:
        """The page tells what became of it."""
        if command == "/raise":
            verdict = _raised(question, limit)
        else:
            verdict = BudgetVerdict(verdict="deny", approval=question.approval)
        await self._client.answer_budget(self._session, verdict)

    async def _show_question(self, event: Event, say: Callable[[str], None]) -> None:
        for asked in await self._client.approvals(self._session):
            if asked.approval == event.body["approval"]:
                self._show(asked, say)

    def _show(self, asked: ApprovalView, say: Callable[[str], None]) -> None:
        self._shown.add(asked.approval)
        for line in lines(asked):
            say(line)
        if asked.kind == "question":
            say(
                "What you type next is the answer, or /answer TEXT; /deny REASON gives none. Where"
                f" several wait, each by its number: /answer {asked.approval} TEXT."
            )
            return
        say(
            "/approve runs it, /always also those after it, /deny REASON does not; where several"
            f" wait, each by its number: /approve {asked.approval}."
        )

    async def _decide(
        self, asked: ApprovalView, command: str, reason: str, say: Callable[[str], None]
    ) -> None:
        if asked.approval not in self._shown and command != "/deny":
            # It came while the person read another, and nobody approves what is not read.
            self._show(asked, say)
            return
        if command == "/deny":
            verdict = verdict_from(asked, "deny", reason=reason)
        elif command == "/answer":
            verdict = answer_to(asked, reason)
        else:
            verdict = verdict_from(asked, "grant" if command == "/always" else "approve")
        say(told(await self._client.answer_approval(self._session, verdict), verdict, asked))

    async def _help(self, say: Callable[[str], None]) -> None:
        say(HELP)
        page = await self._client.skills(self._session)
        names = [f"/{skill.name}" for skill in page.skills if skill.for_people]
        if names:
            say(f"Skills: {', '.join(names)}.")
        prompts = [" ".join((f"/{one.name}", *one.arguments)) for one in page.prompts]
        if prompts:
            say(f"Prompts: {', '.join(prompts)}.")
        if self._agents:
            say(f"Agents: {', '.join(f'@{name}' for name in sorted(self._agents))}.")

    async def _send(
        self, text: str, mode: Mode, say: Callable[[str], None], agent: str | None = None
    ) -> None:
        accepted = await self._client.send(
            self._session,
            checked_text(text),
            mode=mode,
            agent=agent or self._settings.agent,
            model=self._settings.model,
        )
        if accepted.note is not None:
            say(accepted.note)


def _raised(question: BudgetAskView, limit: str) -> BudgetVerdict:
    """The verdict that raises what `question` is about to the `limit` that was typed."""
    number = limit.removeprefix("$").replace(",", "")
    try:
        return BudgetVerdict.model_validate(
            {"verdict": "raise", "approval": question.approval, question.unit: number}
        )
    except ValueError:
        raise UsageError(
            f"{limit[:40]!a} is no limit in {question.unit}; write one such as /raise 20."
        ) from None


def _history(home: Path) -> FileHistory:
    path = prepare(home) / "history"
    path.touch(mode=0o600, exist_ok=True)
    return FileHistory(str(path))
