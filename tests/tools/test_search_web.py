"""search_web: each service asked in its own shape, on a real server that speaks it."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import ValidationError

sys.path.insert(0, str(Path(__file__).parent.parent / "gateways"))

from model_servers import RawServer, Request, answer_json, raw_server

from everturn.errors import ToolFailed, WorkspaceError
from everturn.search import Search
from everturn_activities.searching import search
from everturn_activities.workspace import load

ROWS = [
    {"title": "Tea \n shop", "url": "https://tea.example/", "content": "All  about tea."},
    {"title": "No address", "content": "x"},
    {"title": "Script", "url": "javascript:alert(1)", "content": "x"},
    {"title": "More", "url": "http://more.example/a", "content": "y" * 2_000},
]
BRAVE = [{**row, "description": row["content"]} for row in ROWS]
for row in BRAVE:
    row.pop("content")
KEY = "key-0123456789"


def answering(body: Any, status: int = 200) -> Callable[..., Awaitable[None]]:
    async def answer(request: Request, writer: Any) -> None:
        await answer_json(writer, status, body)

    return answer


def settings(server: RawServer, provider: str, path: str = "") -> Search:
    key = None if provider == "searxng" else "SEARCH_KEY"
    return Search(provider=provider, url=server.url + path, key=key)


def query_of(request: Request) -> dict[str, list[str]]:
    return parse_qs(urlsplit(request.path).query)


@pytest.mark.parametrize(
    ("provider", "body"),
    [
        ("searxng", {"results": ROWS}),
        ("brave", {"type": "search", "web": {"results": BRAVE}}),
        ("tavily", {"query": "tea", "results": ROWS}),
    ],
)
async def test_what_a_service_finds_is_a_list_of_titles_addresses_and_lines(provider, body):
    async with raw_server(answering(body)) as server:
        found = await search(settings(server, provider), KEY, "tea & cups", 8)
        one = await search(settings(server, provider), KEY, "tea", 1)
    assert [(each.title, each.url, len(each.text)) for each in found] == [
        ("Tea shop", "https://tea.example/", 14),
        ("More", "http://more.example/a", 1_000),
    ]
    assert len(one) == 1


async def test_each_service_is_asked_as_it_wants_to_be():
    async with raw_server(answering({"results": [], "web": {"results": []}})) as server:
        await search(settings(server, "searxng", "/search"), None, "tea & cups", 3)
        await search(settings(server, "searxng"), KEY, "tea", 3)
        await search(settings(server, "brave", "/res/v1/web/search"), KEY, "tea & cups", 3)
        await search(settings(server, "tavily", "/search"), KEY, "tea & cups", 3)
    plain, keyed, brave, tavily = server.requests
    assert urlsplit(plain.path).path == urlsplit(keyed.path).path == "/search"
    assert query_of(plain) == {"q": ["tea & cups"], "format": ["json"]}
    assert "authorization" not in plain.headers
    assert keyed.headers["authorization"] == f"Bearer {KEY}"
    assert urlsplit(brave.path).path == "/res/v1/web/search"
    assert query_of(brave) == {"q": ["tea & cups"], "count": ["3"]}
    assert brave.headers["x-subscription-token"] == KEY
    assert tavily.headers["authorization"] == f"Bearer {KEY}"
    assert tavily.headers["content-type"] == "application/json"
    assert tavily.body == {"query": "tea & cups", "max_results": 3}


async def test_brave_that_has_found_nothing_leaves_its_list_out():
    async with raw_server(answering({"type": "search"})) as server:
        assert await search(settings(server, "brave"), KEY, "tea", 3) == []


@pytest.mark.parametrize(
    ("provider", "status", "body", "told"),
    [
        ("searxng", 403, "", "refuses to answer in JSON (HTTP 403); its operator allows that"),
        ("brave", 401, {}, "refused the key of secret SEARCH_KEY (HTTP 401)"),
        ("brave", 422, {}, "refused the key of secret SEARCH_KEY (HTTP 422)"),
        ("tavily", 429, {}, "allows no more searches for now (HTTP 429)"),
        ("tavily", 500, {}, "could not search (HTTP 500)"),
        ("tavily", 302, {}, "could not search (HTTP 302)"),
        ("tavily", 200, [], "answered what is no list of results"),
        ("tavily", 200, {"results": ["x"]}, "answered what is no list of results"),
        ("brave", 200, {"web": {"rows": []}}, "answered what is no list of results"),
    ],
)
async def test_what_a_service_does_wrong_is_one_sentence(provider, status, body, told):
    async with raw_server(answering(body, status)) as server:
        with pytest.raises(ToolFailed) as raised:
            await search(settings(server, provider), KEY, "tea", 3)
    assert told in str(raised.value)
    assert KEY not in str(raised.value)


async def test_a_service_of_the_web_is_never_looked_for_in_this_network(monkeypatch):
    monkeypatch.setattr("everturn.search.SEARCH_URLS", {"tavily": "http://127.0.0.1:9/search"})
    with pytest.raises(ToolFailed, match="There is no way to 127"):
        await search(Search(provider="tavily", key="SEARCH_KEY"), KEY, "tea", 3)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"provider": "searxng"}, "needs the url of a SearXNG"),
        ({"provider": "brave"}, "needs a key: the name of a secret"),
        ({"provider": "searxng", "url": "ftp://x"}, "is http://HOST or https://HOST"),
        ({"provider": "searxng", "url": "http://me:pass@x"}, "without a user"),
        ({"provider": "searxng", "url": "http://x:99999"}, "is http://HOST or https://HOST"),
        ({"provider": "google"}, "searxng"),
    ],
)
def test_settings_that_cannot_work_are_refused(given, told):
    with pytest.raises(ValidationError) as raised:
        Search.model_validate(given)
    assert told in str(raised.value)


def test_a_key_of_which_nobody_knows_where_it_is_is_refused(tmp_path: Path):
    text = '[search]\nprovider = "brave"\nkey = "BRAVE"\n[secrets]\nBRAVE_KEY = {env = "B"}\n'
    (tmp_path / "everturn.toml").write_text(text)
    with pytest.raises(WorkspaceError, match=r"\(did you mean 'BRAVE_KEY'\?\); add it there"):
        load(tmp_path)


def test_an_agent_that_names_the_tool_without_a_search_is_told_what_enables_it(tmp_path: Path):
    (tmp_path / "everturn.toml").write_text("")
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "scout.md").write_text("---\ntools: [search_web]\n---\nLook.\n")
    with pytest.raises(WorkspaceError, match=r"is not enabled: \[search\] of the settings"):
        load(tmp_path).own_spec("scout")
