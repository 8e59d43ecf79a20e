"""What a person asks for by `/name arguments` and `@<server>:<uri>`, where the message is accepted.

A skill is read once, then: what is stored is what every step of the turn sends, however the
skill's file changes meanwhile, and a refusal reaches whoever asked. MCP servers are not launched
here: what is asked of them a worker renders, once, before the step that reads it.
"""

import asyncio
from pathlib import Path

from everturn.agents import AgentSpec
from everturn.context.untrusted import neutral
from everturn.errors import UsageError
from everturn.inputs import checked_text
from everturn.mcp import Prompt, Server
from everturn.mcp_prompts import invocation, may_mention, mentions, offered, written
from everturn.messages import AnyUserPart, SkillInvocation, Text
from everturn.session import SessionKey
from everturn.views import PromptView, SessionView, SkillPage, SkillView
from everturn_activities.skills.shelf import Skills
from everturn_activities.store import Store


def may_ask(text: str) -> bool:
    """Whether `text` looks as if it asked for anything, of which a workspace is then to be read."""
    return text.lstrip().startswith("/") or may_mention(text)


class Invocations:
    """`home` is the home folder of everturn, where a person keeps skills."""

    def __init__(self, home: Path, store: Store) -> None:
        self._skills = Skills(home)
        self._store = store

    async def of(
        self, key: SessionKey, agent: str | None, text: str
    ) -> tuple[AnyUserPart, ...] | None:
        """The parts that `text` comes to, None where it is just a text.

        Raises UsageError where what it asks for is not for people or cannot be read, and where the
        session's servers are known not to have it.
        """
        view = await self._store.session(key)
        try:
            spec = await self._spec(view, agent)
        except UsageError:
            # The turn will say what is wrong with the workspace, as it does of any message.
            return None
        if (skill := await self._skill(spec, text)) is not None:
            return (skill,)
        if not spec.servers:
            return None
        prompt = invocation(text, await self._servers(key, spec))
        if prompt is not None:
            return (prompt,)
        named = mentions(text, spec.servers)
        return (Text(text=text), *named) if named else None

    async def page(self, key: SessionKey) -> SkillPage:
        spec = await self._spec(await self._store.session(key), None)
        catalogue = await self._skills.shelf(spec).catalogue()
        servers = await self._store.served_tools(key, spec.agent.name) if spec.servers else ()
        return SkillPage(
            skills=tuple(
                SkillView(
                    name=skill.name,
                    description=skill.description,
                    trust=skill.trust,
                    source=skill.source,
                    path=skill.path,
                    always_on=skill.is_always_on,
                    for_models=skill.model_invocable,
                    for_people=skill.user_invocable,
                )
                for skill in catalogue.skills
            ),
            prompts=tuple(_shown(*one) for one in offered(servers)),
            problems=catalogue.problems,
        )

    async def _skill(self, spec: AgentSpec, text: str) -> SkillInvocation | None:
        made = await self._skills.shelf(spec).invocation(text)
        if made is not None:
            checked_text(made.text, f"skill {made.name} with its arguments")
        return made

    async def _servers(self, key: SessionKey, spec: AgentSpec) -> tuple[Server, ...]:
        """The agent's servers, with what they are pinned to offer where that does not change."""
        if spec.lifecycle != "frozen":
            return spec.servers
        pinned = {one.name: one for one in await self._store.served_tools(key, spec.agent.name)}
        return tuple(pinned.get(server.name, server) for server in spec.servers)

    async def _spec(self, view: SessionView, agent: str | None) -> AgentSpec:
        return await asyncio.to_thread(_read, view, agent)


def _read(view: SessionView, agent: str | None) -> AgentSpec:
    from everturn_activities.workspace import load

    workspace = load(Path(view.workspace))
    return workspace.spec(agent or view.agent, None, Path(view.working_dir))


def _shown(name: str, server: Server, prompt: Prompt) -> PromptView:
    return PromptView(
        name=name,
        server=server.name,
        description=neutral(prompt.description),
        arguments=tuple(neutral(one) for one in written(prompt)),
    )
