"""What every request passes before any route."""

import asyncio

import httpx
import pytest
from pydantic import SecretStr

from everturn.errors import UsageError

KEY = "k" * 43


@pytest.fixture
async def locked(runtime):
    """An API with a key."""
    app = runtime.app(api_key=SecretStr(KEY))
    async with (
        runtime.served(app) as served,
        httpx.AsyncClient(base_url=served.url) as http,
    ):
        yield http


@pytest.fixture
async def http(served):
    async with httpx.AsyncClient(base_url=served.url) as http:
        yield http


def is_problem(answer: httpx.Response, status: int) -> bool:
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert set(body) == {"type", "title", "status", "detail"}
    assert body["detail"].endswith(".")
    return answer.status_code == body["status"] == status


async def test_without_the_key_every_route_but_healthz_is_closed(locked, runtime):
    paths = runtime.app().openapi()["paths"]
    asked = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    assert len(asked) >= 10

    for method, path in [
        *asked,
        ("GET", "/v1/openapi.json"),
        ("GET", "/none"),
        ("GET", "//healthz"),
    ]:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": KEY}):
            answer = await locked.request(
                method, path.format(id="s", name="n", approval="1"), headers=headers
            )
            assert answer.status_code == (200 if path == "/healthz" else 401), (method, path)


async def test_with_the_key_the_routes_are_open(locked):
    answer = await locked.get("/v1/sessions", headers={"authorization": f"Bearer {KEY}"})

    assert answer.status_code == 200


async def test_no_route_escapes_the_list_that_is_walked(runtime):
    app = runtime.app()
    listed = set(app.openapi()["paths"]) | {"/v1/openapi.json"}

    assert {path for route in app.routes if (path := getattr(route, "path", None))} <= listed


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::2]:80"])
async def test_a_foreign_host_name_is_refused(http, host):
    assert is_problem(await http.get("/v1/sessions", headers={"host": host}), 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:7430", "127.0.0.1", "[::1]:7430"])
async def test_names_of_this_machine_are_served(http, host):
    assert (await http.get("/healthz", headers={"host": host})).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
async def test_a_page_of_another_origin_is_refused(http, origin):
    assert is_problem(await http.get("/v1/sessions", headers={"origin": origin}), 403)


async def test_a_page_of_our_own_origin_is_served(http):
    origin = str(http.base_url).rstrip("/")

    assert (await http.get("/v1/sessions", headers={"origin": origin})).status_code == 200


@pytest.mark.parametrize("media_type", ["text/plain", "multipart/form-data", None])
async def test_a_body_that_is_not_json_by_its_type_is_refused(http, media_type):
    headers = {"content-type": media_type} if media_type else {}

    answer = await http.post("/v1/sessions", content=b'{"id": "s"}', headers=headers)

    assert is_problem(answer, 415)


async def test_a_body_above_the_limit_is_refused_before_it_is_read(served):
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    writer.write(
        f"POST /v1/sessions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        f"content-length: {2**30}\r\n\r\n".encode()
    )

    assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    writer.close()
    await writer.wait_closed()


async def test_a_body_of_unknown_length_is_read_up_to_the_limit(http):
    async def endless():
        for _ in range(3):
            yield b" " * 1024 * 1024

    headers = {"content-type": "application/json"}
    answer = await http.post("/v1/sessions", content=endless(), headers=headers)

    assert is_problem(answer, 413)


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 422, "body is missing"),
        (b"{", 400, "not valid JSON"),
        (b"[]", 422, "The body is no JSON object; send one."),
        (b'"a"', 422, "The body is no JSON object; send one."),
        (b'{"text": "\xff"}', 400, "UTF-8"),
        (b'{"text": "\\ud800"}', 400, "surrogate"),
        (b'{"message": ' + b"[" * 100_000, 400, "not valid JSON"),
        (b'{"text": "a", "spare": 1}', 422, "'spare' is not known"),
        (b'{"text": "a", "mode": "later"}', 422, "'mode'"),
        (b'{"text": 5}', 422, "'text'"),
        (b"{}", 422, "'text' or 'message'"),
        (b'{"text": " "}', 422, "empty"),
        (b'{"message": {"parts": []}}', 422, "empty"),
        (b'{"text": "a", "id": "a b"}', 422, "message id"),
        (
            b'{"message": {"parts": [{"type": "image", "media_type": "image/png", "data": "?"}]}}',
            422,
            "base64",
        ),
    ],
)
async def test_a_wrong_body_is_answered_with_one_sentence(http, body, status, says):
    await http.post("/v1/sessions", json={"id": "s"})

    answer = await http.post("/v1/sessions/s/messages", content=body, headers=JSON)

    assert is_problem(answer, status)
    assert says in answer.json()["detail"]


async def test_fields_that_do_not_go_together_are_told_as_such(http):
    await http.post("/v1/sessions", json={"id": "s"})

    answer = await http.post("/v1/sessions/s/budget", json={"verdict": "raise"})

    assert is_problem(answer, 422)
    assert answer.json()["detail"] == (
        "The body is wrong: a raise needs a new limit: usd, tokens, steps or seconds;"
        " correct it and send again."
    )


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/sessions/nobody", 404),
        ("GET", "/v1/sessions/nobody/turns", 404),
        ("GET", "/v1/sessions/nobody/messages", 404),
        ("GET", "/v1/sessions/nobody/events", 404),
        ("GET", "/v1/sessions/%00", 404),
        ("DELETE", "/nothing", 404),
        ("POST", "/nothing", 404),
        ("POST", "/v1/sessions/s/nothing", 404),
        ("GET", "/v1/sessions/s/cancel", 405),
        ("GET", "/v1/sessions?limit=0", 422),
        ("GET", "/v1/sessions?limit=x", 422),
        ("GET", "/v1/sessions/s/messages?after=99999999999999999999", 422),
        ("GET", "/v1/sessions/s/events?after=here", 422),
        ("GET", "/v1/sessions/s/events?after=-1", 422),
        ("GET", "/v1/sessions/s/events?until=never", 422),
    ],
)
async def test_a_wrong_request_is_answered_with_a_problem_document(http, method, path, status):
    await http.post("/v1/sessions", json={"id": "s"})

    assert is_problem(await http.request(method, path), status)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/healthz", "GET"),
        ("DELETE", "/v1/sessions", "GET, POST"),
        ("PUT", "/v1/sessions/s", "GET"),
        ("PATCH", "/v1/sessions/s/messages", "GET, POST"),
        ("POST", "/v1/sessions/s/events", "GET"),
        ("GET", "/v1/sessions/s/cancel", "POST"),
        ("OPTIONS", "/v1/sessions", "GET, POST"),
    ],
)
async def test_a_wrong_method_is_answered_with_those_that_are_right(http, method, path, allowed):
    answer = await http.request(method, path)

    assert is_problem(answer, 405)
    assert answer.headers["allow"] == allowed
    assert answer.json()["detail"] == f"{method} is not possible at {path!r}; use {allowed}."


async def test_a_bug_is_answered_without_its_details(runtime):
    async def broken(*_):
        raise ValueError("secret")

    runtime.store.sessions = broken
    transport = httpx.ASGITransport(runtime.app(), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        answer = await http.get("/v1/sessions")

    assert is_problem(answer, 500)
    assert "secret" not in answer.text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_network_address_without_a_key_refuses_to_start(runtime, host):
    with pytest.raises(UsageError, match=r"EVERTURN_API_KEY, or listen on 127\.0\.0\.1\."):
        runtime.app(host=host)


def test_an_empty_key_is_no_key(runtime):
    with pytest.raises(UsageError, match="EVERTURN_API_KEY is empty"):
        runtime.app(api_key=SecretStr(" "))


async def test_readiness_tells_what_is_waited_for(http, runtime):
    assert (await http.get("/readyz")).status_code == 200

    runtime.missing = "Temporal at 127.0.0.1:7233"
    answer = await http.get("/readyz")

    assert is_problem(answer, 503)
    assert answer.json()["detail"] == "Waits for Temporal at 127.0.0.1:7233."


async def test_readiness_names_what_streams_alone_wait_for(runtime):
    async def waits():
        return "Redis at r:6379, which has no memory left"

    runtime.streams_wait = waits
    transport = httpx.ASGITransport(runtime.app())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        answer = await http.get("/readyz")

    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "degraded": "Streams wait for Redis at r:6379, which has no memory left.",
    }
