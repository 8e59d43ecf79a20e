"""Searching the web by a service: one way to ask each of them, and to read what it answers."""

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlencode, urlsplit

from everturn.errors import ToolFailed
from everturn.hosts import HostRule, Reach
from everturn.outgoing import HttpAnswer
from everturn.search import Found, Search
from everturn_activities.web import ask

TEXT_CHARACTERS_MAX = 1_000
_ANYWHERE = (ip_network("0.0.0.0/0"), ip_network("::/0"))


@dataclass(frozen=True)
class _Request:
    method: str
    url: str
    headers: dict[str, str]
    json: Any = None


async def search(settings: Search, key: str | None, query: str, count: int) -> list[Found]:
    """What the service finds, the best first. Raises ToolFailed with the reason."""
    asked, results = _SERVICES[settings.provider]
    request = asked(settings.address, key or "", query, count)
    answer = await ask(
        _reach(settings),
        request.method,
        request.url,
        headers={"Accept": "application/json", **request.headers},
        json=request.json,
    )
    if answer.status != 200:
        raise ToolFailed(_refusal(settings, answer))
    try:
        rows = results(answer.json())
        found = [_found(row) for row in rows if str(row.get("url", "")).startswith("http")]
    except (AttributeError, KeyError, TypeError):
        raise ToolFailed(f"{_host(settings)} answered what is no list of results.") from None
    return found[:count]


def _reach(settings: Search) -> Reach:
    """The operator's own address may be anywhere; a service's is public."""
    url = urlsplit(settings.address)
    assert url.hostname is not None
    port = url.port or (443 if url.scheme == "https" else 80)
    rules = [HostRule(name=url.hostname, port=port)]
    if settings.url is not None:
        rules += [HostRule(network=network, port=port) for network in _ANYWHERE]
    return Reach(tuple(rules))


def _host(settings: Search) -> str:
    return urlsplit(settings.address).netloc


def _refusal(settings: Search, answer: HttpAnswer) -> str:
    host, status = _host(settings), answer.status
    if status == 429:
        return f"{host} allows no more searches for now (HTTP 429); try again later."
    if settings.provider == "searxng" and status == 403:
        return (
            f"{host} refuses to answer in JSON (HTTP 403); its operator allows that by formats in"
            " its settings.yml."
        )
    if status in (401, 403, 422) and settings.key is not None:
        return f"{host} refused the key of secret {settings.key} (HTTP {status}); set it anew."
    return f"{host} could not search (HTTP {status})."


def _found(row: dict[str, Any]) -> Found:
    text = " ".join(str(row.get("content") or row.get("description") or "").split())
    title = " ".join(str(row.get("title") or "").split())
    return Found(title=title, url=str(row["url"]), text=text[:TEXT_CHARACTERS_MAX])


def _searxng(address: str, key: str, query: str, count: int) -> _Request:
    base = address.rstrip("/").removesuffix("/search")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return _Request("GET", f"{base}/search?{urlencode({'q': query, 'format': 'json'})}", headers)


def _brave(address: str, key: str, query: str, count: int) -> _Request:
    url = f"{address}?{urlencode({'q': query, 'count': count})}"
    return _Request("GET", url, {"X-Subscription-Token": key})


def _tavily(address: str, key: str, query: str, count: int) -> _Request:
    body = {"query": query, "max_results": count}
    return _Request("POST", address, {"Authorization": f"Bearer {key}"}, body)


def _results(answer: Any) -> list[Any]:
    return list(answer["results"])


def _web_results(answer: Any) -> list[Any]:
    # Brave leaves `web` out where it has found nothing.
    return list((answer.get("web") or {"results": []})["results"])


_Ask = Callable[[str, str, str, int], _Request]
_SERVICES: dict[str, tuple[_Ask, Callable[[Any], list[Any]]]] = {
    "searxng": (_searxng, _results),
    "brave": (_brave, _web_results),
    "tavily": (_tavily, _results),
}
