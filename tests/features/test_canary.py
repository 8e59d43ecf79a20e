"""A secret that a turn's tools print in many forms is found nowhere afterwards."""

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from harness import Bench, says, scripted
from plays import Play, play, write

from everturn_activities.sandbox import probe

CANARY = "canary/0123456789+mine"
OTHER = "unnamed-0123456789"

TOOLS = '''
import base64
import logging
from urllib.parse import quote

from everturn import ToolContext, ToolFailed, tool


@tool(effect="pure", secrets=["TOKEN"])
def prints(context: ToolContext, long: bool = False) -> str:
    """Print all that it knows."""
    value = context.secret("TOKEN")
    logging.getLogger("shop").warning("The token is %s.", value)
    said = [value, quote(value, safe=""), value.encode().hex()]
    said.append(base64.b64encode(f"user:{value}".encode()).decode())
    # So long that the cut goes through a value wherever it is made.
    return " ".join(said * (400 if long else 1))


@tool(effect="pure", secrets=["TOKEN"])
async def fails(context: ToolContext) -> str:
    """Fail with what it knows."""
    raise RuntimeError(f"401: {context.secret('TOKEN')} was refused")


@tool(effect="once", secrets=["TOKEN"])
async def mumbles(context: ToolContext) -> str:
    """Say it in pieces."""
    import asyncio

    value = context.secret("TOKEN")
    context.progress(f"it is {value[:7]}")
    await asyncio.sleep(0.4)
    context.progress(f"{value[7:]}, and no other")
    await asyncio.sleep(0.4)
    return "said"


@tool(effect="pure", secrets=["TOKEN"])
def peeks(context: ToolContext) -> str:
    """Read what it has not named."""
    return context.secret("OTHER")


@tool(effect="pure")
def idles(context: ToolContext) -> str:
    """Come upon a value by itself."""
    import os

    return os.environ["SHOP_CREDENTIAL"]


@tool(effect="pure", secrets=["NOWHERE"])
def lacks(context: ToolContext) -> str:
    """Read what is missing."""
    return context.secret("NOWHERE")


def would(context: ToolContext) -> str:
    return context.secret("TOKEN")


@tool(effect="once", secrets=["TOKEN"], requires_approval=True, preview=would)
def asks(context: ToolContext) -> str:
    """Show what it would do."""
    return "done"
'''

SETTINGS = """
[secrets]
TOKEN = {env = "SHOP_CREDENTIAL"}
OTHER = {env = "OTHER_CREDENTIAL"}
NOWHERE = {env = "NO_CREDENTIAL"}
"""

FORMS = (
    CANARY,
    quote(CANARY, safe=""),
    CANARY.encode().hex(),
    base64.b64encode(f"user:{CANARY}".encode()).decode()[10:30],
    base64.b64encode(CANARY.encode()).decode()[:20],
    json.dumps(CANARY)[1:-1],
)


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_CREDENTIAL", CANARY)
    monkeypatch.setenv("OTHER_CREDENTIAL", OTHER)


async def history_of(made: Bench, played: Play) -> str:
    """All that the Temporal server keeps of the session."""
    handle = made.client.get_workflow_handle(played.key.workflow_id)
    return (await handle.fetch_history()).to_json()


def files_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def shows(text: str) -> list[str]:
    return [form for form in FORMS if form in text]


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"calls": [{"name": name, "arguments": arguments}]}


async def test_a_secret_that_tools_print_is_in_no_store_event_history_log_or_request(
    made: Bench, named: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "everturn_activities")
    caplog.set_level("DEBUG", "everturn_workers")
    steps = [call(name) for name in ("prints", "fails", "mumbles", "peeks", "idles", "lacks")]
    played = await play(
        made,
        # A person may give it away too: the provider is not told.
        f"My token is {OTHER}.",
        replies=[*steps, call("prints", long=True), says("Done.")],
        files={"tools/shop.py": TOOLS, "everturn.toml": SETTINGS},
    )

    requests = json.dumps(played.requests)
    assert shows(requests) == []
    assert OTHER not in requests
    assert "My token is [secret OTHER]." in requests
    told = {e.body["name"]: e.body["text"] for e in played.events if e.type == "tool_finished"}
    assert told["fails"] == "RuntimeError: 401: [secret TOKEN] was refused"
    assert told["peeks"] == (
        "This tool may not read secret OTHER; it may read TOKEN: its author names what it reads,"
        " by @tool(secrets=['OTHER'])."
    )
    assert told["idles"] == "[secret TOKEN]"
    assert told["lacks"] == "Secret NOWHERE is missing: set the variable NO_CREDENTIAL."
    said = [event.body["text"] for event in played.events if event.type == "tool_output"]
    assert said == ["it is ", "[secret TOKEN], and no other"]
    assert shows(str(played.events)) == []
    assert shows(await history_of(made, played)) == []
    await made.runtime.store.close()
    assert shows(files_of(made.settings.home).decode("latin-1")) == []
    ours = [one.getMessage() for one in caplog.records if one.name != "shop"]
    assert shows("\n".join(ours)) == []


@pytest.mark.skipif(not probe().available, reason=str(probe().reason))
async def test_commands_find_the_secrets_that_their_agents_file_names_and_no_other(
    made: Bench, named: None
) -> None:
    command = (
        'test "${#TOKEN}" = 22 && echo it is there; env; echo $TOKEN | base64;'
        " cat /proc/1/cmdline | tr '\\0' ' '; ls /proc/self/fd | wc -l"
    )
    agent = "---\ncommand_secrets: [TOKEN]\n---\nSell.\n"
    files = {"everturn.toml": SETTINGS, "agents/shop.md": agent}
    replies = [call("run_command", command=command), says("Done.")]
    played = await play(made, ("shop", "Go."), replies=replies, files=files)
    without = await play(made, "Go.", replies=replies, session="s2")

    [finished] = [event for event in played.events if event.type == "tool_finished"]
    assert "it is there" in finished.body["text"]
    assert "TOKEN=[secret TOKEN]" in finished.body["text"]
    assert "OTHER" not in finished.body["text"]
    assert "setenv TOKEN" not in finished.body["text"]
    assert shows(str(played.events)) == []
    assert "TOKEN" not in str(without.events[-3:])


async def test_a_preview_reads_secrets_and_shows_none(made: Bench, named: None) -> None:
    write(made, {"tools/shop.py": TOOLS, "everturn.toml": SETTINGS})
    key = await made.session()
    async with made.worker(scripted(call("asks"), says("Done."))):
        await made.send(key, "Ask.")
        asked = (await made.until(key, "approval_asked"))[-1]
    assert asked.body["preview"] == "[secret TOKEN]"


async def test_a_hook_finds_the_secrets_of_commands_and_tells_none(
    made: Bench, named: None
) -> None:
    hook = '[[hooks.agent_spawn]]\ncommand = ["env"]\n'
    agent = "---\ncommand_secrets: [TOKEN]\n---\nSell.\n"
    files = {"everturn.toml": SETTINGS + hook, "agents/shop.md": agent}
    played = await play(made, ("shop", "Go."), replies=[says("Done.")], files=files)
    assert "TOKEN=[secret TOKEN]" in played.system
    await made.runtime.store.close()
    assert shows(files_of(made.settings.home).decode("latin-1")) == []


async def test_a_file_that_a_prompt_quotes_may_hold_a_secret_and_the_prompt_does_not(
    made: Bench, named: None
) -> None:
    files = {
        "everturn.toml": SETTINGS,
        "agents/shop.md": f"---\n---\nSell. The token is {CANARY}.\n",
    }
    # As where a worker begins the turn, and does not find it begun.
    made.runtime.vault.scrubber.learn("TOKEN", CANARY)
    played = await play(made, ("shop", "Go."), replies=[says("Done.")], files=files)
    step = await made.runtime.store.prepared(played.key, 1, 1)
    assert step is not None
    made_of = await made.runtime.store.snapshot(step.layers)
    assert "The token is [secret TOKEN]." in "".join(made_of.texts.values())
    assert "The token is [secret TOKEN]." in played.system
