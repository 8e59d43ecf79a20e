"""What a person types to ask for prompts and resources of servers."""

import pytest

from everturn.errors import UsageError
from everturn.mcp import Argument, Catalogue, Prompt, Server, ServerConfig
from everturn.mcp_prompts import chosen, filled, invocation, may_mention, mentions
from everturn.messages import PromptInvocation, ResourceMention

CONFIG = ServerConfig(command="x")
NEW = (Server(name="a", config=CONFIG), Server(name="a_b", config=CONFIG))


def prompt(*names: str, required: int = 0) -> Prompt:
    arguments = tuple(Argument(name=name, required=n < required) for n, name in enumerate(names))
    return Prompt(name="p", arguments=arguments)


def asked(arguments: str) -> PromptInvocation:
    return PromptInvocation(name="mcp_a_p", arguments=arguments)


@pytest.mark.parametrize(
    ("names", "typed", "told"),
    [
        (("one", "two"), "", {}),
        (("one", "two"), "x", {"one": "x"}),
        (("one", "two"), "x y z", {"one": "x", "two": "y z"}),
        (("one", "two"), "two=x y z", {"two": "x", "one": "y z"}),
        (("one", "two"), '"a b" two="c d"', {"one": "a b", "two": "c d"}),
        (("one",), "it's a day", {"one": "it's a day"}),
        (("one",), "one=a=b", {"one": "a=b"}),
        (("one",), "http://x/?a=b", {"one": "http://x/?a=b"}),
    ],
)
def test_arguments_are_told_by_name_or_in_their_order(
    names: tuple[str, ...], typed: str, told: dict[str, str]
):
    assert filled(prompt(*names), asked(typed)) == told


@pytest.mark.parametrize(
    ("names", "typed", "sentence"),
    [
        ((), "x", "has nothing that 'x' is for; write just /mcp_a_p."),
        (("one",), "two=x", "has no argument 'two'; write /mcp_a_p one=...."),
        (("one",), "one=x one=y", "is given 'one' twice; give it once."),
        (("one",), "one=x y", "has nothing that 'y' is for; write /mcp_a_p one=...."),
        (("one",), "", "needs 'one', which is missing; write /mcp_a_p one=...."),
    ],
)
def test_arguments_that_do_not_fit_are_told_of_in_a_sentence(
    names: tuple[str, ...], typed: str, sentence: str
):
    with pytest.raises(UsageError) as refused:
        filled(prompt(*names, required=1), asked(typed))
    assert str(refused.value) == f"Prompt /mcp_a_p {sentence}"


@pytest.mark.parametrize(
    "text", ["mcp_a_p", "say /mcp_a_p", "/mcp_a_p/x", "/mcp_", "/skill", "/mcp"]
)
def test_a_text_that_does_not_begin_as_a_prompts_name_asks_for_none(text: str):
    assert invocation(text, NEW) is None


@pytest.mark.parametrize("text", ["/mcp_b_p", "/mcp_a", "/mcp_ab_p x"])
def test_a_prompt_of_no_server_is_refused_where_there_are_servers(text: str):
    assert invocation(text, ()) is None
    with pytest.raises(UsageError) as refused:
        invocation(text, NEW)
    assert str(refused.value) == (
        f"There is no prompt {text.split()[0]}: it would be one of an MCP server, and the session's"
        " servers are a, a_b."
    )


def test_a_prompt_is_asked_for_by_its_shape_until_its_server_is_known():
    assert invocation(" /mcp_a_p  x\ny ", NEW) == asked("x\ny")
    known = Server(name="a", config=CONFIG, catalogue=Catalogue(identity=("x",)))
    with pytest.raises(
        UsageError, match=r"There is no prompt /mcp_a_p; the session's servers have"
    ):
        invocation("/mcp_a_p", [known])


def test_a_prompt_of_a_name_that_two_servers_could_have_is_that_of_the_one_that_has_it():
    """`mcp_a_b_p` may be `b_p` of a, or `p` of a_b."""
    other = Catalogue(identity=("x",), prompts=(Prompt(name="q"),))
    has = Catalogue(identity=("x",), prompts=(Prompt(name="p"),))
    servers = (
        Server(name="a", config=CONFIG, catalogue=other),
        Server(name="a_b", config=CONFIG, catalogue=has),
    )
    found, _ = chosen("mcp_a_b_p", servers)
    assert found.name == "a_b"
    assert invocation("/mcp_a_b_p", servers) is not None


@pytest.mark.parametrize(
    ("text", "uris"),
    [
        ("Compare @a:file:///x and (@a:note:///y).", ["file:///x"]),
        ("See @a:file:///x, @a:file:///x!", ["file:///x"]),
        ("'@a:file:///x'", []),
        ("me@a:file:///x", []),
        ("@b:file:///x @a:nothing", []),
        ("@a:file:///a.txt.\n@a_b:x:y", ["file:///a.txt", "x:y"]),
    ],
)
def test_resources_are_named_by_their_server_and_their_address(text: str, uris: list[str]):
    assert [one.uri for one in mentions(text, NEW)] == uris
    assert may_mention(text) or not uris


def test_too_many_resources_are_refused():
    with pytest.raises(UsageError, match=r"names 11 resources and the limit is 10; name fewer"):
        mentions(" ".join(f"@a:x:{n}" for n in range(11)), NEW)
    assert mentions("@a:x:1", NEW) == (ResourceMention(server="a", uri="x:1"),)
