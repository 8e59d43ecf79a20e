"""What tools are told of the runtime: our own more than a workspace's."""

from pathlib import Path

from everturn.session import SessionKey
from everturn_activities.builtin.inside import InsideContext
from everturn_activities.toolbox import call_tool
from everturn_activities.workspace import load
from everturn_activities.workspaces import Workspaces

PRYING = '''
from everturn import ToolContext, tool


@tool(effect="pure")
def pry(context: ToolContext) -> str:
    """Tell what there is to know."""
    return f"{type(context).__name__} {context.session} {hasattr(context, 'services')}"
'''
KEY = SessionKey("default", "s")


async def test_a_tool_of_a_workspace_is_told_nothing_of_the_inside(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "everturn.toml").write_text("")
    (tmp_path / "tools" / "prying.py").write_text(PRYING)
    workspaces = Workspaces()
    spec = load(tmp_path).spec()
    described, tool = spec.tool("pry"), workspaces.tool(spec, "pry")
    assert described is not None
    assert tool is not None
    context = workspaces.context(spec, KEY, 1, 2, 0, 1)
    assert isinstance(context, InsideContext)

    ran = await workspaces.call(tool, described, {}, None, context)

    assert ran.text == "ToolContext s False"
    # It is the toolbox that hands over what it is given: nobody else does it for a workspace.
    assert (await call_tool(tool, described, {}, None, context)).text == "InsideContext s True"


def test_a_call_has_one_idempotency_key_in_all_its_attempts(tmp_path: Path) -> None:
    (tmp_path / "everturn.toml").write_text("")
    workspaces = Workspaces()
    spec = load(tmp_path).spec()
    first = workspaces.context(spec, KEY, 1, 2, 0, 1)
    assert workspaces.context(spec, KEY, 1, 2, 0, 5).idempotency_key == first.idempotency_key
    others = [workspaces.context(spec, KEY, *at, 1) for at in ((2, 2, 0), (1, 1, 0), (1, 2, 1))]
    assert len({context.idempotency_key for context in (first, *others)}) == 4
