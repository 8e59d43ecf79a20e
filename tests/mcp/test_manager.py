"""The manager of an agent's servers: six requests, one launch of each, and nothing after."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from small import Small

from everturn.errors import ServerAlreadyLaunched, ServerFailed, UsageError
from everturn.mcp import ServerConfig
from everturn.session import SessionKey
from everturn_activities.mcp.manager import Manager
from everturn_activities.mcp.pool import Pool
from everturn_activities.mcp.requests import (
    ExecuteTool,
    GetPrompt,
    GetPrompts,
    GetToolSpecs,
    LaunchServer,
    Terminate,
    parse,
)
from everturn_activities.vault import Vault

KEY = SessionKey("t", "s")


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    made = Pool(Vault({"MY_SECRET": "hush-hush-hush"}))
    yield made
    await made.close()


def config(small: Small, **more: object) -> ServerConfig:
    command, *args = small.command
    return ServerConfig.model_validate({"command": command, "args": args, **more})


async def test_K22_each_of_the_six_requests_is_served(pool: Pool, tmp_path: Path):
    small = Small.made(tmp_path / "a", "echo")
    manager = Manager(pool, KEY, str(tmp_path))

    await manager.handle(LaunchServer(server_name="a", config=config(small)))
    catalogue = await manager.handle(GetToolSpecs(server_name="a"))
    prompts = await manager.handle(GetPrompts(server_name="a"))
    prompt = await manager.handle(GetPrompt(server_name="a", name="greet", arguments={"who": "me"}))
    answer = await manager.handle(
        ExecuteTool(server_name="a", tool_name="echo", args={"x": 1}), "the-key"
    )
    await manager.handle(Terminate())

    assert [offer.name for offer in catalogue.offers] == ["echo"]
    greet = next(one for one in prompts if one.name == "greet")
    assert [(one.name, one.required) for one in greet.arguments] == [("who", True), ("how", False)]
    assert [piece.text for piece in prompt] == ["Greet me kindly, the time 1."]
    assert answer.text == 'said {"x": 1}'
    [call] = small.asked("tools/call")
    assert call["_meta"]["everturn/idempotency_key"] == "the-key"
    with pytest.raises(ServerFailed, match="Server a is not launched"):
        await manager.handle(GetToolSpecs(server_name="a"))


@pytest.mark.parametrize("name", ["RemoveServer", "AddServer", "terminate", ""])
def test_K22_any_other_request_is_refused_as_unknown(name: str):
    with pytest.raises(UsageError, match="That is no request to a manager of servers"):
        parse(json.dumps({"request": name, "server_name": "a"}))


def test_K22_a_request_with_a_field_of_its_own_is_refused():
    with pytest.raises(UsageError, match=r"at Terminate\.server_name"):
        parse('{"request": "Terminate", "server_name": "a"}')
    assert parse('{"request": "Terminate"}') == Terminate()


async def test_K25_a_server_that_runs_is_not_launched_again(pool: Pool, tmp_path: Path):
    small = Small.made(tmp_path / "a", "count")
    manager = Manager(pool, KEY, str(tmp_path))
    launch = LaunchServer(server_name="a", config=config(small))
    count = ExecuteTool(server_name="a", tool_name="count")
    await manager.handle(launch)
    assert (await manager.handle(count)).text == "count 1"

    with pytest.raises(ServerAlreadyLaunched, match="Server a is launched already"):
        await manager.handle(launch)

    assert (await manager.handle(count)).text == "count 2"
    assert len(small.asked("initialize")) == 1


async def test_K23_no_server_is_added_once_the_manager_is_frozen(pool: Pool, tmp_path: Path):
    manager = Manager(pool, KEY, str(tmp_path))
    manager.freeze()
    with pytest.raises(ServerFailed, match="Server b cannot be added"):
        await manager.handle(
            LaunchServer(server_name="b", config=config(Small.made(tmp_path / "b")))
        )


async def test_sessions_share_a_server_unless_it_is_stateful(pool: Pool, tmp_path: Path):
    count = ExecuteTool(server_name="a", tool_name="count")
    for stateful, counts in ((False, ["count 1", "count 2"]), (True, ["count 1", "count 1"])):
        small = Small.made(tmp_path / str(stateful), "count")
        launch = LaunchServer(server_name="a", config=config(small, stateful=stateful))
        told = []
        for session in ("s1", "s2"):
            manager = Manager(pool, SessionKey("t", session), str(tmp_path))
            await manager.handle(launch)
            told.append((await manager.handle(count)).text)
        assert told == counts


async def test_a_server_that_died_is_launched_again_at_its_next_use(pool: Pool, tmp_path: Path):
    small = Small.made(tmp_path / "a", "die", "echo")
    manager = Manager(pool, KEY, str(tmp_path))
    await manager.handle(LaunchServer(server_name="a", config=config(small)))
    with pytest.raises(ServerFailed, match="The server has ended"):
        await manager.handle(ExecuteTool(server_name="a", tool_name="die"))
    answer = await manager.handle(ExecuteTool(server_name="a", tool_name="echo"))
    assert answer.text == "said {}"
    assert len(small.asked("initialize")) == 2


async def test_a_server_gets_the_variables_it_is_given_and_no_others(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTHER", "ours")
    small = Small.made(tmp_path / "a", "secret")
    manager = Manager(pool, KEY, str(tmp_path))
    given = config(small, env={"SECRET": "MY_SECRET"})
    await manager.handle(LaunchServer(server_name="a", config=given))
    answer = await manager.handle(ExecuteTool(server_name="a", tool_name="secret"))
    assert answer.text == "hush-hush-hush None"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"command": "no-such-program"}, "there is no program 'no-such-program' on PATH"),
        ({"command": "cat", "env": ["ABSENT"]}, "the variable ABSENT is not set where the worker"),
        (
            {"command": "sh", "args": ["-c", "echo no $MY_SECRET >&2; exit 1"],
             "env": ["MY_SECRET"]},
            "its last words were: no [...]",
        ),
        ({"command": "sleep", "args": ["60"], "launch_seconds": 0.2}, "not ready within 0.2 s"),
    ],
)  # fmt: skip
async def test_a_server_that_cannot_be_launched_is_told_of_in_a_sentence(
    pool: Pool, tmp_path: Path, given: dict[str, object], sentence: str
):
    manager = Manager(pool, KEY, str(tmp_path))
    launch = LaunchServer(server_name="a", config=ServerConfig.model_validate(given))
    with pytest.raises(ServerFailed) as refused:
        await manager.handle(launch)
    assert str(refused.value).startswith("MCP server a cannot be launched: ")
    assert sentence in str(refused.value)
    assert "hush" not in str(refused.value)
