"""everturn mcp list, add, test and accept."""

import json
import os
import sys
from pathlib import Path

from guarded import guarded
from small import Small, tool


async def test_a_server_is_added_listed_and_tested(commands, runtime, tmp_path: Path):
    small = Small.made(tmp_path / "small", tool("say it", "Says.\u202eesrever"), "count")
    added = await commands("mcp", "add", "mine", "--stateful", "--env", "MY_KEY", "--",
                           *small.command)  # fmt: skip
    assert (added.code, added.out) == (0, "")
    assert added.err == "Added; 'everturn mcp test mine' shows what it offers.\n"

    listed = await commands("mcp", "list", "--json")
    [server] = map(json.loads, listed.out.splitlines())
    assert (server["name"], server["kind"], server["stateful"]) == ("mine", "stdio", True)
    assert [server["command"], *server["args"]] == small.command
    assert server["env"] == {"MY_KEY": "MY_KEY"}

    tested = await commands("mcp", "test", "mine", MY_KEY="x")
    assert tested.code == 0
    assert "mcp_mine_say_it" in tested.out
    assert "/mcp_mine_greet" in tested.out
    assert "who=... [how=...]" in tested.out
    assert "It has resources" not in tested.out
    assert "\u202e" not in tested.out
    assert tested.err.startswith("Server mine, version 1, digest ")


async def test_a_server_that_cannot_be_launched_is_told_of(commands, runtime):
    await commands("mcp", "add", "mine", "--env", "MY_KEY", "--", "cat")
    tested = await commands("mcp", "test", "mine")
    assert (tested.code, tested.err) == (
        1,
        "MCP server mine cannot be launched: the variable MY_KEY is not set where the worker"
        " runs, and [secrets] has none.\n",
    )


async def test_collisions_of_names_are_reported(commands, runtime, tmp_path: Path):
    small = Small.made(tmp_path / "small", "a b", "a/b")
    await commands("mcp", "add", "mine", "--", *small.command)
    tested = await commands("mcp", "test", "mine")
    assert tested.code == 1
    assert (
        "Tool 'a/b' of server mine is left out: its name would be mcp_mine_a_b, which is that of"
        " tool 'a b' of server mine."
    ) in tested.err


async def test_what_is_wrong_with_a_server_is_told_in_a_sentence(commands, runtime):
    file = runtime.workspace / "everturn.toml"
    before = file.read_text() if file.exists() else ""
    for arguments, sentence in (
        (("mcp", "add", "Mine", "--", "cat"), "The server's name 'Mine' must begin with a small"),
        (("mcp", "add", "m", "--env", "sk-123", "--", "cat"), "env gives sk-123 what is no name"),
        (("mcp", "test", "mine"), "There is no server 'mine'"),
        (("mcp", "accept", "nobody"), "There is no session 'nobody'"),
    ):
        ran = await commands(*arguments)
        assert ran.code == 2, ran
        assert sentence in ran.err
        assert ran.err.count("\n") == 1
    assert file.read_text() == before


async def test_a_person_signs_in_by_a_browser_and_out_again(commands, runtime, tmp_path: Path):
    """The browser is a program that follows where it is led, as one does who agrees."""
    browser = tmp_path / "bin" / "xdg-open"
    browser.parent.mkdir()
    browser.write_text(
        f"#!{sys.executable} -IS\nimport sys, urllib.request\nurllib.request.urlopen(sys.argv[1])\n"
    )
    browser.chmod(0o755)
    path = f"{browser.parent}:{os.environ['PATH']}"
    async with guarded() as guard:
        await commands("mcp", "add", "far", "--url", guard.url)
        signed_in = await commands("mcp", "login", "far", PATH=path)
        listed = await commands("mcp", "list", "--json")
        signed_out = await commands("mcp", "logout", "far")
    asked, done = signed_in.err.splitlines()
    assert asked.startswith(f"Sign in at {guard.url.removesuffix('/mcp')}/authorize?")
    assert done == "Signed in; 'everturn mcp test far' shows what far offers."
    assert json.loads(listed.out)["sign_in"] == "signed in"
    assert (signed_out.code, signed_out.err) == (0, "Signed out of far.\n")
    for told in (signed_in, listed):
        assert not any(token in told.out + told.err for token in guard.given)


async def test_who_cannot_sign_in_reads_why(commands, runtime):
    await commands("mcp", "add", "mine", "--", "cat")
    program = await commands("mcp", "login", "mine")
    await commands("mcp", "add", "plain", "--url", "http://mcp.example.com/mcp")
    plain = await commands("mcp", "login", "plain", "--no-browser")
    nobody = await commands("mcp", "logout", "plain")
    assert (program.code, program.err) == (
        2,
        "Server mine is a program; who signs in does so at an address.\n",
    )
    assert plain.code == 1
    assert plain.err.startswith("Nobody was signed in at plain: its address begins with http://,")
    assert (nobody.code, nobody.err) == (1, "Nobody is signed in at plain.\n")
