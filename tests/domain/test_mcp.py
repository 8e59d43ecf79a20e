"""MCP servers as an operator names them, and the names and digests of what they offer."""

import re

import pytest
from pydantic import ValidationError

from everturn.agents import Agent, AgentSpec, ToolSpec
from everturn.mcp import (
    Catalogue,
    Offer,
    Server,
    ServerConfig,
    demand_server_name,
    differences,
    header_variable,
    named,
    still,
    tool_name,
)
from everturn.mcp_tools import with_catalogues


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "a server has either a command or a url"),
        ({"command": "x", "url": "http://x"}, "a server has either a command or a url"),
        ({"url": "ftp://x"}, "does not begin with http:// or https:// and a host"),
        ({"url": "http://user@x/"}, "does not begin with http:// or https:// and a host"),
        ({"url": "http://x", "args": ["y"]}, "args and env go with a command"),
        ({"command": "x", "headers": {"A": "B"}}, "headers and allowed_hosts go with a url"),
        ({"command": "x", "env": {"A": "sk-123"}}, "env gives A what is no name of a variable"),
        ({"url": "http://x", "headers": {"A": "sk-123"}}, "the header A names no variable"),
        ({"url": "http://x", "headers": {"A": "s3cr3t ${B}"}}, "the header A names no variable"),
        ({"url": "http://x", "allowed_hosts": ["a b"]}, "'a b' is no host"),
        ({"url": "http://x:1:2"}, "has no host and port as one writes them"),
    ],
)
def test_a_wrong_server_is_told_of_in_a_sentence(given: dict[str, object], sentence: str):
    with pytest.raises(ValidationError, match=re.escape(sentence)) as refused:
        ServerConfig.model_validate(given)
    assert "sk-123" not in str(refused.value).partition("[type=")[0]


@pytest.mark.parametrize("name", ["", "A", "1a", "a b", "a.b", "a" * 33])
def test_a_server_has_a_name_that_tools_can_be_called_by(name: str):
    with pytest.raises(ValueError, match="must begin with a small letter"):
        demand_server_name(name)
    demand_server_name("a-b_1")


def test_a_header_is_the_value_of_a_variable_and_how_it_is_used():
    assert header_variable("MY_TOKEN") == ("", "MY_TOKEN")
    assert header_variable("Bearer ${MY_TOKEN}") == ("Bearer ", "MY_TOKEN")


@pytest.mark.parametrize(
    "tool", ["read the page", "a/b.c", "\u202e\x00\n", "ünïcode", "x" * 300, "", "../../etc"]
)
def test_every_tool_has_a_name_that_providers_take(tool: str):
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool_name("server", tool))


def test_long_names_that_differ_at_their_ends_differ():
    assert tool_name("s", "x" * 80 + "a") != tool_name("s", "x" * 80 + "b")


def test_of_two_tools_of_one_name_the_first_has_it_whatever_order_they_come_in():
    offers = [Offer(name="a/b"), Offer(name="a b"), Offer(name="c")]
    for given in (offers, offers[::-1]):
        found, problems = named("s", given, {"mcp_s_c": "another"})
        assert {name: offer.name for name, offer in found.items()} == {"mcp_s_a_b": "a b"}
        assert problems == [
            "Tool 'a/b' of server s is left out: its name would be mcp_s_a_b, which is that of"
            " tool 'a b' of server s.",
            "Tool 'c' of server s is left out: its name would be mcp_s_c, which is that of"
            " another.",
        ]


OFFER = Offer(name="a", description="b", parameters={"x": 1}, annotations={"readOnlyHint": True})
PINNED = Catalogue(identity=("cat",), version="1", offers=(OFFER, Offer(name="z")))


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"identity": ("dog",)}, "it is started by another command"),
        ({"version": "2"}, "its version was '1' and is '2'"),
        ({"offers": (OFFER,)}, "it offers no more 'z'"),
        ({"offers": (*PINNED.offers, Offer(name="n"))}, "it newly offers 'n'"),
        *(
            ({"offers": (OFFER.model_copy(update=change), Offer(name="z"))},
             "it describes otherwise 'a'")
            for change in ({"description": "c"}, {"parameters": {"x": 2}}, {"annotations": {}})
        ),
    ],
)  # fmt: skip
def test_whatever_changes_of_a_server_changes_its_digest_and_is_named(
    now: dict[str, object], said: str
):
    found = PINNED.model_copy(update=now)
    assert found.digest != PINNED.digest
    assert said in differences(PINNED, found)


def test_the_order_in_which_a_server_tells_of_its_tools_changes_nothing():
    turned = PINNED.model_copy(update={"offers": PINNED.offers[::-1]})
    assert turned.digest == PINNED.digest


def test_a_pinned_server_runs_by_todays_settings_but_no_other_command():
    pinned = Server(name="a", config=ServerConfig(command="cat"), catalogue=PINNED)
    today = Server(name="a", config=ServerConfig(command="cat", effect="pure"))
    [found] = still([pinned], [today, Server(name="b", config=ServerConfig(command="cat"))])
    assert (found.config.effect, found.catalogue) == ("pure", PINNED)
    with pytest.raises(ValueError, match="another MCP server a"):
        still([pinned], [Server(name="a", config=ServerConfig(command="dog"))])
    with pytest.raises(ValueError, match="which its agent has no more"):
        still([pinned], [])


def test_a_tool_for_resources_whose_name_is_taken_is_left_out_and_told_of():
    catalogue = Catalogue(identity=("cat",), has_resources=True)
    server = Server(name="s", config=ServerConfig(command="cat"), catalogue=catalogue)
    own = ToolSpec(name="read_resource", description="", parameters={}, source="tools/mine.py")
    spec = AgentSpec(
        agent=Agent(), workspace="/w", working_dir="/w", servers=(server,), tools=(own,)
    )
    found, problems = with_catalogues(spec, lambda schema: None)
    assert [(tool.name, tool.source) for tool in found.tools] == [
        ("read_resource", "tools/mine.py"),
        ("list_resources", "mcp:"),
    ]
    assert problems == [
        "Tool read_resource of MCP is left out: that is the name of the tool of tools/mine.py."
    ]
    without = spec.but(tools=(), hidden=("read_resource",))
    hidden, _ = with_catalogues(without, lambda schema: None)
    assert [tool.name for tool in hidden.tools] == ["list_resources"]


@pytest.mark.parametrize(
    ("held", "tools", "withheld"),
    [
        ({}, ["mcp_s_change", "mcp_s_look"], []),
        ({"hidden": ("mcp_s_look",)}, ["mcp_s_change"], []),
        ({"hidden": ("mcp_*",)}, [], []),
        ({"served_only": ()}, [], []),
        ({"served_only": ("delegate", "mcp_s_lo*")}, ["mcp_s_look"], []),
        ({"agent": Agent(tools=("read_file", "mcp_s_look"))}, ["mcp_s_look"], []),
        ({"agent": Agent(access="read-only")}, ["mcp_s_look"], ["mcp_s_change"]),
    ],
)
def test_servers_give_an_agent_no_tool_that_it_may_not_have(
    held: dict[str, object], tools: list[str], withheld: list[str]
):
    offers = (Offer(name="look"), Offer(name="change"))
    server = Server(
        name="s",
        config=ServerConfig(command="cat", effects={"look": "pure"}),
        catalogue=Catalogue(identity=("cat",), offers=offers),
    )
    spec = AgentSpec(agent=Agent(), workspace="/w", working_dir="/w", servers=(server,)).but(**held)
    found, problems = with_catalogues(spec, lambda schema: None)
    assert [tool.name for tool in found.tools] == tools
    assert list(found.withheld) == withheld
    assert problems == []
    assert with_catalogues(found, lambda schema: None)[0].tools == found.tools
