"""Showing a tool call that waits for leave, and asking the person at the terminal about it."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from everturn.approvals import ToolVerdict
from everturn.client import Client
from everturn.errors import UsageError
from everturn.tools import ASK_USER
from everturn.views import AcceptedView, ApprovalView
from everturn_workers.cli.show import printable

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

Say = Callable[[str], None]
PREVIEW_LINES = 60
ANSWER = "Your answer (/deny for none): "
QUESTION = "Run it? (y)es, (a)lways in this session, (e)dit, (n)o: "


def lines(asked: ApprovalView) -> list[str]:
    """A question as it is shown: the call, its arguments, and what it would do."""
    if asked.kind == "question":
        return [printable(line) for line in _question(asked)]
    shown = [f"Approval {asked.approval} of session {asked.session}: {asked.tool}"]
    for name, value in asked.arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        # Further lines are indented: what a model wrote must not look like ours.
        first, *further = _cut(text, 2_000).splitlines() or [""]
        shown += [f"  {name}: {first}", *(f"    {line}" for line in further)]
    if asked.preview is not None:
        preview = asked.preview.splitlines()
        shown += [f"  | {line}" for line in preview[:PREVIEW_LINES]]
        if len(preview) > PREVIEW_LINES:
            shown.append(f"  | ... {len(preview) - PREVIEW_LINES} more lines")
    return [printable(line) for line in shown]


def _question(asked: ApprovalView) -> list[str]:
    by = "" if asked.tool == ASK_USER else f", asked by {asked.tool}"
    shown = [f"Question {asked.approval} of session {asked.session}{by}"]
    # Indented: what a model wrote must not look like ours.
    shown += [f"  {line}" for line in _cut(asked.question, 4_000).splitlines()]
    for number, choice in enumerate(asked.choices, start=1):
        first, *further = choice.splitlines() or [""]
        shown += [f"  {number}. {first}", *(f"     {line}" for line in further)]
    if asked.answer_schema is not None:
        shown.append(f"  as JSON of: {json.dumps(asked.answer_schema, ensure_ascii=False)}")
    return shown


def chosen(asked: Sequence[ApprovalView], approval: int | None, session: str) -> ApprovalView:
    """The question of that number, or the only one; UsageError where that is not clear."""
    if approval is None and len(asked) == 1:
        return asked[0]
    for one in asked:
        if one.approval == approval:
            return one
    if not asked:
        raise UsageError(f"No call of session {session} waits for leave.")
    numbers = ", ".join(str(one.approval) for one in reversed(asked))
    if approval is None:
        raise UsageError(f"Session {session} has approvals {numbers}; name one.")
    raise UsageError(f"Approval {approval} of session {session} does not wait; {numbers} does.")


def how_to_decide(asked: ApprovalView) -> str:
    where = f"{asked.session} {asked.approval}"
    if asked.kind == "question":
        return (
            f"The turn waits for an answer: 'everturn approvals answer {where} TEXT', or"
            f" 'everturn approvals deny {where}'."
        )
    return (
        f"The turn waits for leave to run {printable(asked.tool)}: 'everturn approvals approve"
        f" {where}', or 'everturn approvals deny {where}'."
    )


def verdict_from(asked: ApprovalView, decision: str, **more: object) -> ToolVerdict:
    """The verdict on a question as it was shown; UsageError where it is not possible."""
    digest = None if decision == "deny" else asked.digest
    given = {"approval": asked.approval, "verdict": decision, "digest": digest, **more}
    try:
        return ToolVerdict.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"{first['loc'][0]}: " if first["loc"] else ""
        said = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"The verdict is not possible: {where}{said}.") from None


def answer_to(asked: ApprovalView, text: str) -> ToolVerdict:
    """The verdict that answers a question by a text, or by the number of a choice."""
    said = text.strip()
    if said.isdecimal() and 1 <= int(said) <= len(asked.choices):
        said = asked.choices[int(said) - 1]
    if not said:
        raise UsageError("The answer is empty; write one, or refuse to answer.")
    return verdict_from(asked, "answer", answer=said)


def told(accepted: AcceptedView, verdict: ToolVerdict, asked: ApprovalView) -> str:
    """What became of a verdict."""
    if accepted.status == "too_late":
        return accepted.note or "The verdict came too late."
    if asked.kind == "question":
        return "It is answered." if verdict.verdict == "answer" else "It is told that you do not."
    said = {
        "approve": "It runs.",
        "grant": "It runs, and calls like it in this session need no further leave.",
        "deny": "It does not run.",
    }
    return said[verdict.verdict]


def arguments_from(text: str) -> dict[str, object]:
    """Arguments that a person wrote as JSON; UsageError for what is none."""
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise UsageError('The arguments are not one JSON object, such as {"path": "a.txt"}.')
    return given


async def decide(client: Client, asked: ApprovalView, say: Say) -> None:
    """Ask until there is an answer, and send it."""
    from prompt_toolkit import PromptSession

    prompt: PromptSession[str] = PromptSession()
    for line in lines(asked):
        say(line)
    while True:
        try:
            verdict = await _answer(prompt, asked)
            if verdict is not None:
                say(told(await client.answer_approval(asked.session, verdict), verdict, asked))
                return
        except UsageError as error:
            say(str(error))


async def _answer(prompt: "PromptSession[str]", asked: ApprovalView) -> ToolVerdict | None:
    if asked.kind == "question":
        text = (await prompt.prompt_async(ANSWER)).strip()
        if text == "/deny":
            return verdict_from(asked, "deny")
        return answer_to(asked, text)
    match (await prompt.prompt_async(QUESTION)).strip().lower():
        case "y" | "yes":
            return verdict_from(asked, "approve")
        case "a" | "always":
            return verdict_from(asked, "grant")
        case "n" | "no":
            reason = await prompt.prompt_async("Why (the model reads it; may be empty): ")
            return verdict_from(asked, "deny", reason=reason.strip())
        case "e" | "edit":
            now = json.dumps(asked.arguments, ensure_ascii=False)
            text = await prompt.prompt_async("Arguments: ", default=now)
            return verdict_from(asked, "approve", arguments=arguments_from(text))
        case _:
            return None


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"
