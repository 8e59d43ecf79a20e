"""Sources that need nothing but the layer, the agent and its workspace."""

from collections.abc import Sequence

from everturn.context.layers import Item
from everturn.profile import BOUNDARY, SUMMARY
from everturn_activities.sources import Asked, Sources
from everturn_activities.sources.capabilities import capabilities
from everturn_activities.sources.facts import date_and_time, facts, runtime
from everturn_activities.sources.file import file, tool_prompts
from everturn_activities.sources.identity import identity
from everturn_activities.sources.managed import managed
from everturn_activities.sources.nothing import nothing
from everturn_activities.sources.options import options
from everturn_activities.sources.project import project


async def text(asked: Asked) -> Sequence[Item]:
    """What the layer itself says."""
    return ({"text": asked.layer.text},)


async def agent_prompt(asked: Asked) -> Sequence[Item]:
    """The prompt of the agent's file."""
    return ({"text": asked.spec.agent.prompt, "name": asked.spec.agent.name},)


PLAIN: Sources = {
    "text": text,
    "agent_prompt": agent_prompt,
    BOUNDARY: text,
    "capabilities": capabilities,
    "datetime": date_and_time,
    "facts": facts,
    "file": file,
    "identity": identity,
    "managed": managed,
    "options": options,
    "project": project,
    "runtime": runtime,
    "tool_prompts": tool_prompts,
    # A compaction's summary is put in when a request is composed.
    SUMMARY: nothing,
}
