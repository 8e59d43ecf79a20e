"""What a person asks for by `/name arguments`, settled where the message is accepted.

A skill is read once, then: what is stored is what every step of the turn sends, however the
skill's file changes meanwhile, and a refusal reaches whoever asked.
"""

import asyncio
from pathlib import Path

from everturn.errors import UsageError
from everturn.inputs import checked_text
from everturn.messages import SkillInvocation
from everturn.views import SessionView, SkillPage, SkillView
from everturn_activities.skills.shelf import Shelf, Skills


class Invocations:
    """`home` is the home folder of everturn, where a person keeps skills."""

    def __init__(self, home: Path) -> None:
        self._skills = Skills(home)

    async def of(self, view: SessionView, agent: str | None, text: str) -> SkillInvocation | None:
        """What `text` asks for, None where it asks for no skill.

        Raises UsageError where the skill is not for people or cannot be read.
        """
        try:
            shelf = await self._shelf(view, agent)
        except UsageError:
            # The turn will say what is wrong with the workspace, as it does of any message.
            return None
        made = await shelf.invocation(text)
        if made is not None:
            checked_text(made.text, f"skill {made.name} with its arguments")
        return made

    async def page(self, view: SessionView) -> SkillPage:
        catalogue = await (await self._shelf(view, None)).catalogue()
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
            problems=catalogue.problems,
        )

    async def _shelf(self, view: SessionView, agent: str | None) -> Shelf:
        return await asyncio.to_thread(self._read, view, agent)

    def _read(self, view: SessionView, agent: str | None) -> Shelf:
        from everturn_activities.workspace import load

        workspace = load(Path(view.workspace))
        spec = workspace.spec(agent or view.agent, None, Path(view.working_dir))
        return self._skills.shelf(spec)
