"""Rows of how tools come to be there: built in, from packages, with all that a call may know."""

import json
from pathlib import Path
from typing import Any

import pytest
from harness import Bench, says
from installed import packages
from model_servers import Request, answer_json, raw_server
from plays import play

from everturn_activities.builtin import builtins
from everturn_activities.store import Assignment
from everturn_activities.workspaces import Workspaces

SETTINGS = '[secrets]\nTOKEN = {env = "SHOP_CREDENTIAL"}\n'


async def test_T26_the_built_in_tools_register_together_and_skills_apart(made: Bench) -> None:
    folder = str(made.workspace)
    asked = Assignment("default", None, folder, folder, pinned=None)
    five = {"read_file", "write_file", "edit_file", "list_files", "web_fetch"}
    assert five <= builtins().keys()
    without = {tool.name for tool in Workspaces().spec(asked).tools}
    (made.workspace / "skills").mkdir()
    (made.workspace / "skills" / "greet.md").write_text("Greet.")
    with_skills = Workspaces(services=made.runtime.services).spec(asked)
    assert five <= without
    assert {tool.name for tool in with_skills.tools} - without == {"skill"}


async def test_T25_tools_of_a_package_work_as_any_other_async_and_in_a_thread(
    made: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_CREDENTIAL", "canary-0123456789")
    calls = [{"name": name, "arguments": {"item": "tea"}} for name in ("order", "order_slowly")]
    with packages(tmp_path) as install:
        install("shop_tools", "all = shop_tools")
        played = await play(
            made,
            "Order tea.",
            replies=[{"calls": calls}, says("Ordered.")],
            files={"everturn.toml": SETTINGS},
        )
    finished = [e.body for e in played.events if e.type == "tool_finished"]
    texts = [json.loads(body["text"]) for body in sorted(finished, key=lambda b: b["index"])]
    (session, first, token), (_, second, _, on_loop) = texts
    assert (session, token, on_loop) == ("s", "[secret TOKEN]", False)
    # A call's own key, for all of its attempts.
    assert len(first) == len(second) == 64
    assert first != second


ASKS = '''
from everturn import ToolContext, tool


@tool(effect="keyed")
async def order(url: str, context: ToolContext) -> int:
    """Order tea of a server."""
    return (await context.http("POST", url, json={"item": "tea"})).status
'''


async def test_a_tools_request_has_its_calls_key_and_goes_where_the_agent_may(made: Bench) -> None:
    async def taken(request: Request, writer: Any) -> None:
        await answer_json(writer, 201, {})

    async with raw_server(taken) as server:
        host = server.url.removeprefix("http://")
        calls = [
            {"name": "order", "arguments": {"url": url}}
            for url in (f"{server.url}/a", f"{server.url}/b", "http://127.0.0.1:9/")
        ]
        played = await play(
            made,
            "Order.",
            replies=[{"calls": calls}, says("Ordered.")],
            files={
                "everturn.toml": f'[network]\nallowed_hosts = ["{host}"]\n',
                "tools/order.py": ASKS,
            },
        )
    finished = [e.body for e in played.events if e.type == "tool_finished"]
    texts = [body["text"] for body in sorted(finished, key=lambda b: b["index"])]
    assert texts[:2] == ["201", "201"]
    assert texts[2].startswith("There is no way to 127.0.0.1")
    first, second = {request.headers["idempotency-key"] for request in server.requests}
    assert len(first) == len(second) == 64
