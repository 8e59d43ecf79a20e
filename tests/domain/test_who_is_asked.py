"""Which calls a person is asked about, and which a grant lets pass."""

import pytest
from pydantic import ValidationError

from everturn.agents import Agent, AgentSpec, ToolSpec
from everturn.approvals import Approvals, ToolVerdict, covers, digest_of


def spec(**agent: object) -> AgentSpec:
    return AgentSpec(agent=Agent(**agent), workspace="/w", working_dir="/w")  # type: ignore[arg-type]


def tool(name: str, **more: object) -> ToolSpec:
    return ToolSpec(name=name, description="", parameters={}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("agent", "described", "asks"),
    [
        ({}, tool("write"), False),
        ({}, tool("write", requires_approval=True), True),
        ({"allowed_tools": ("read",)}, tool("write"), True),
        ({"allowed_tools": ("write",)}, tool("write", requires_approval=True), False),
        ({"allowed_tools": ("write_file",)}, tool("fs_write", runs="write_file"), False),
        ({"approvals": Approvals(tools=("mcp_*",))}, tool("mcp_git_push"), True),
        ({"approvals": Approvals(tools=("mcp_*",))}, tool("write"), False),
        # Who is named among those that are asked about is asked about.
        ({"allowed_tools": ("w",), "approvals": Approvals(tools=("w",))}, tool("w"), True),
        ({"approvals": Approvals(tools=("write_file",))}, tool("fw", runs="write_file"), True),
        ({"approvals": Approvals(tools=("*",))}, tool("response"), False),
        ({"allowed_tools": ()}, tool("anything", source="answer"), False),
    ],
)
def test_t25_k30_a_tool_asks_by_itself_or_because_the_agent_says_so(
    agent: dict[str, object], described: ToolSpec, asks: bool
) -> None:
    assert spec(**agent).asks_about(described, {}) is asks


def test_a_tool_may_ask_about_some_of_its_calls_only() -> None:
    cron = tool("cron", requires_approval=True, asks_only={"action": "add"})
    asks = [spec().asks_about(cron, {"action": action}) for action in ("add", "list")]
    assert asks == [True, False]
    # An agent whose file names what nobody is asked about says so of all of its calls.
    assert spec(allowed_tools=("read",)).asks_about(cron, {"action": "list"})


@pytest.mark.parametrize(
    ("pattern", "given", "passes"),
    [
        ({}, {"command": "anything"}, True),
        ({"command": "git status"}, {"command": "git status"}, True),
        ({"command": "git status"}, {"command": "git status -s"}, False),
        ({"command": "git *"}, {"command": "git log -3"}, True),
        ({"command": "git *"}, {"command": "rm -r git x"}, False),
        ({"command": "git *"}, {"command": "git log; rm -r x"}, False),
        ({"command": "git *"}, {"command": "git log\nrm -r x"}, False),
        ({"command": "git *"}, {"command": "git log $(rm x)"}, False),
        ({"command": "git *"}, {"command": "git log `rm x`"}, False),
        ({"command": "git *"}, {"command": "git log > /etc/passwd"}, False),
        ({"command": "git *"}, {"command": "git log | sh"}, False),
        ({"command": "git *"}, {"command": "git log & sh"}, False),
        ({"path": "docs/*"}, {"path": "docs/a/b.md"}, True),
        ({"path": "docs/*"}, {"path": "docs/../secret"}, False),
        ({"path": "docs/*"}, {}, False),
        ({"n": "3"}, {"n": 3}, True),
        ({"n": "3"}, {"n": 30}, False),
        ({"path": "a.b"}, {"path": "axb"}, False),
        ({"path": "a.*"}, {"path": "axb"}, False),
        # Two of them: both must fit.
        ({"path": "docs/*", "mode": "add"}, {"path": "docs/a", "mode": "drop"}, False),
    ],
)
def test_a_granted_pattern_lets_pass_what_it_says_and_no_second_command(
    pattern: dict[str, str], given: dict[str, object], passes: bool
) -> None:
    assert covers(pattern, given) is passes


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"verdict": "approve"}, "names the digest"),
        ({"verdict": "grant"}, "names the digest"),
        ({"verdict": "deny", "arguments": {}}, "names no arguments"),
        ({"verdict": "deny", "pattern": {}}, "no pattern"),
        ({"verdict": "approve", "digest": "d", "pattern": {}}, "only a grant"),
        ({"verdict": "deny", "reason": "x" * 2001}, "2000"),
    ],
)
def test_a_verdict_says_one_thing(said: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        ToolVerdict(approval=1, **said)  # type: ignore[arg-type]


def test_the_digest_of_a_call_tells_its_tool_and_arguments_apart_and_not_their_order() -> None:
    calls = [("t", {"a": 1, "b": 2}), ("u", {"a": 1, "b": 2}), ("t", {"a": 2, "b": 1})]
    assert len({digest_of(*call) for call in calls}) == 3
    assert digest_of("t", {"b": 2, "a": 1}) == digest_of("t", {"a": 1, "b": 2})
