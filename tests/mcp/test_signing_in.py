"""Signing in at a remote server by OAuth, against the SDK's own server of MCP and of tokens."""

import asyncio
import json
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import httpx
import httpx2
import pytest
from guarded import Guarded, guarded
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from everturn.errors import ServerFailed
from everturn.mcp import OAuthConfig, ServerConfig
from everturn.session import SessionKey
from everturn_activities.mcp.login import sign_in
from everturn_activities.mcp.manager import Manager
from everturn_activities.mcp.oauth import SignedIn
from everturn_activities.mcp.pool import Pool
from everturn_activities.mcp.requests import ExecuteTool, LaunchServer
from everturn_activities.mcp.sign_ins import Kept, SignIn
from everturn_activities.vault import Vault

SIGN_IN = "it wants somebody to sign in, by: everturn mcp login far"
WHO = ExecuteTool(server_name="far", tool_name="who")


def config(guard: Guarded) -> ServerConfig:
    return ServerConfig(url=guard.url)


def kept(guard: Guarded, home: Path) -> Kept:
    return Kept(home, "/work", "far", guard.url)


class Browser:
    """A person who opens the address, and agrees."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self._opening: set[asyncio.Task[None]] = set()

    def __call__(self, url: str) -> None:
        self.urls.append(url)
        self._opening.add(asyncio.create_task(self._open(url)))

    async def _open(self, url: str) -> None:
        async with httpx.AsyncClient(follow_redirects=True, trust_env=False) as client:
            await client.get(url)

    async def closed(self) -> None:
        await asyncio.gather(*self._opening)


async def signed_in(guard: Guarded, home: Path) -> Browser:
    browser = Browser()
    await sign_in("far", config(guard), kept(guard, home), browser)
    await browser.closed()
    return browser


async def launched(pool: Pool, guard: Guarded, session: str = "s") -> Manager:
    manager = Manager(pool, SessionKey("t", session), "/work")
    await manager.handle(LaunchServer(server_name="far", config=config(guard)))
    return manager


async def test_who_signs_in_is_let_in_and_the_token_stands_in_one_file_only(tmp_path: Path):
    async with guarded() as guard:
        browser = await signed_in(guard, tmp_path)
        vault = Vault({})
        pool = Pool(vault, tmp_path)
        manager = await launched(pool, guard)
        answer = await manager.handle(WHO)
        await pool.close()

    [url] = browser.urls
    asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    assert answer.text == "Hello, you."
    assert asked["code_challenge_method"] == "S256"
    assert len(asked["state"]) > 20
    assert asked["redirect_uri"].startswith("http://127.0.0.1:")
    assert asked["resource"] == guard.url
    [file] = await asyncio.to_thread(lambda: list(tmp_path.glob("*/*.json")))
    folder = file.parent
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    masked = "[secret of server far]"
    assert vault.scrubber.scrubbed(" ".join(guard.given)) == f"{masked} {masked}"


async def test_a_token_that_has_expired_is_renewed_once_by_all_workers(tmp_path: Path):
    async with guarded(seconds=1) as guard:
        await signed_in(guard, tmp_path)
        guard.seconds = 3600
        pools = [Pool(Vault({}), tmp_path) for _ in range(4)]
        managers = await asyncio.gather(*(launched(pool, guard) for pool in pools))
        told = await asyncio.gather(*(manager.handle(WHO) for manager in managers))
        await asyncio.gather(*(pool.close() for pool in pools))
    assert {one.text for one in told} == {"Hello, you."}
    assert guard.renewals == 1


async def test_a_token_that_is_taken_back_ends_calls_until_somebody_signs_in_again(tmp_path: Path):
    async with guarded() as guard:
        pool = Pool(Vault({}), tmp_path)
        with pytest.raises(ServerFailed) as never:
            await launched(pool, guard)
        await signed_in(guard, tmp_path)
        manager = await launched(pool, guard)
        guard.forget()
        with pytest.raises(ServerFailed) as taken:
            await manager.handle(WHO)
        standing = kept(guard, tmp_path).read()
        await signed_in(guard, tmp_path)
        answer = await manager.handle(WHO)
        await pool.close()
    assert str(never.value) == f"MCP server far cannot be launched: {SIGN_IN}."
    assert str(taken.value) == SIGN_IN
    assert standing is not None
    assert standing.standing(0.0) == "expired"
    assert answer.text == "Hello, you."


async def test_a_token_that_is_not_good_before_its_time_is_renewed_within_the_call(tmp_path: Path):
    async with guarded() as guard:
        await signed_in(guard, tmp_path)
        pool = Pool(Vault({}), tmp_path)
        manager = await launched(pool, guard)
        guard.tokens.clear()
        answer = await manager.handle(WHO)
        await pool.close()
    assert (answer.text, guard.renewals) == ("Hello, you.", 1)


async def test_who_signs_out_is_let_in_no_more(tmp_path: Path):
    async with guarded() as guard:
        await signed_in(guard, tmp_path)
        pool = Pool(Vault({}), tmp_path)
        manager = await launched(pool, guard)
        assert kept(guard, tmp_path).remove()
        with pytest.raises(ServerFailed, match="everturn mcp login far"):
            await manager.handle(WHO)
        await pool.close()


async def test_only_what_belongs_to_this_sign_in_counts(tmp_path: Path):
    """Any page of a browser can lead it to our port, with a code of its own."""
    async with guarded() as guard:
        statuses: list[int] = []

        class Meddled(Browser):
            async def _open(self, url: str) -> None:
                back = parse_qs(urlsplit(url).query)["redirect_uri"][0]
                async with httpx.AsyncClient(trust_env=False) as client:
                    for path, query in (
                        ("/callback", {"code": "theirs", "state": "guessed"}),
                        ("/callback", {"code": "theirs"}),
                        ("/other", {"code": "theirs"}),
                    ):
                        parts = urlsplit(back)._replace(path=path, query=urlencode(query))
                        statuses.append((await client.get(urlunsplit(parts))).status_code)
                await super()._open(url)

        browser = Meddled()
        await sign_in("far", config(guard), kept(guard, tmp_path), browser)
        await browser.closed()
    assert statuses == [400, 400, 404]
    assert kept(guard, tmp_path).read() is not None


async def test_who_is_refused_reads_why_and_nothing_is_kept(tmp_path: Path):
    async with guarded(refuses=True) as guard:
        with pytest.raises(ServerFailed, match=r"^it was refused: access_denied$"):
            await signed_in(guard, tmp_path)
    assert kept(guard, tmp_path).read() is None


@pytest.mark.parametrize(
    ("told_at", "client", "why"),
    [
        ("\x01", "", "Invalid non-printable ASCII character in URL, .*"),
        ("", '{"client_id": 5, "client_secret": "hush-hush"}', r"Invalid registration [^\n]*"),
    ],
)
async def test_a_server_that_answers_nonsense_is_said_to_in_one_line(
    tmp_path: Path, told_at: str, client: str, why: str
):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        known = {b"/mcp": ("401", ""), b"/register": ("201", client)}
        status, body = known.get(target, ("404", ""))
        wants = f'Bearer resource_metadata="{told_at}"' if told_at else "Bearer"
        writer.write(
            f"HTTP/1.1 {status} So\r\nWWW-Authenticate: {wants}\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with server:
        with pytest.raises(ServerFailed) as failed:
            await sign_in("far", ServerConfig(url=url), Kept(tmp_path, "/work", "far", url), print)
    assert re.fullmatch(why, str(failed.value))
    assert "hush-hush" not in str(failed.value)


async def test_no_token_is_asked_for_over_a_line_that_others_read(tmp_path: Path):
    far = ServerConfig(url="http://mcp.example.com/mcp")
    with pytest.raises(ServerFailed, match="its address begins with http://"):
        await sign_in("far", far, Kept(tmp_path, "/work", "far", str(far.url)), print)


@pytest.mark.parametrize("wrong", ["authorization_endpoint", "token_endpoint"])
async def test_nobody_is_sent_to_sign_in_over_a_line_that_others_read(tmp_path: Path, wrong: str):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        told = {"issuer": origin} | {
            f"{name}_endpoint": f"{origin}/{name}" for name in ("authorization", "token")
        }
        told |= {"response_types_supported": ["code"], wrong: "http://login.example.com/x"}
        known = {
            b"/mcp": ("401", ""),
            b"/.well-known/oauth-authorization-server": ("200", json.dumps(told)),
        }
        status, body = known.get(target, ("404", ""))
        writer.write(
            f"HTTP/1.1 {status} So\r\nWWW-Authenticate: Bearer\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    config = ServerConfig(url=f"{origin}/mcp", oauth=OAuthConfig(client_id="everturn"))
    asked: list[str] = []
    async with server:
        with pytest.raises(ServerFailed, match=r"an address of login\.example\.com that begins"):
            await sign_in("far", config, Kept(tmp_path, "/work", "far", origin), asked.append)
    assert asked == []


@pytest.mark.parametrize(
    ("status", "why"),
    [(200, "it asks nobody to"), (502, "it asks nobody to, and answers with the status 502")],
)
async def test_a_server_that_asks_nobody_to_sign_in_is_told_with_its_answer(
    tmp_path: Path, status: int, why: str
):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} So\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with server:
        with pytest.raises(ServerFailed) as failed:
            await sign_in("far", ServerConfig(url=url), Kept(tmp_path, "/work", "far", url), print)
    assert str(failed.value) == why


async def test_a_client_that_is_known_there_does_not_register(tmp_path: Path):
    class AnyPort(OAuthClientInformationFull):
        def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
            assert redirect_uri is not None
            return redirect_uri

    known = AnyPort(
        client_id="known",
        client_secret="hush-hush",
        token_endpoint_auth_method="client_secret_post",
    )
    async with guarded(seconds=1, clients={"known": known}) as guard:
        oauth = {"client_id": "known", "client_secret": "FAR_SECRET"}
        static = ServerConfig.model_validate({"url": guard.url, "oauth": oauth})
        browser = Browser()
        await sign_in("far", static, kept(guard, tmp_path), browser, "hush-hush")
        await browser.closed()
        pool = Pool(Vault({"FAR_SECRET": "hush-hush"}), tmp_path)
        manager = Manager(pool, SessionKey("t", "s"), "/work")
        await manager.handle(LaunchServer(server_name="far", config=static))
        await pool.close()
        without = ServerConfig.model_validate({"url": guard.url, "oauth": {"client_id": "known"}})
        other = Pool(Vault({}), tmp_path)
        with pytest.raises(ServerFailed, match="everturn mcp login far"):
            await Manager(other, SessionKey("t", "s"), "/work").handle(
                LaunchServer(server_name="far", config=without)
            )
        await other.close()
    assert parse_qs(urlsplit(browser.urls[0]).query)["client_id"] == ["known"]
    assert len(guard.clients) == 1
    assert guard.renewals >= 1
    [file] = await asyncio.to_thread(lambda: list(tmp_path.glob("oauth/*.json")))
    assert "hush-hush" not in file.read_text()


FAR = "https://far.example/mcp"
OLD = SignIn(
    server="far",
    url=FAR,
    tokens={"access_token": "old", "token_type": "Bearer", "refresh_token": "renew"},
    client={"client_id": "me", "redirect_uris": ["http://127.0.0.1/"]},
    expires_at=0.0,
)
NEW = replace(OLD, tokens={**OLD.tokens, "access_token": "new"}, expires_at=None)


async def renewing(home: Path, answer: Callable[[Kept], httpx2.Response]) -> SignIn | None:
    """What is kept once a token that has expired was to be renewed, and that was answered so."""
    kept = Kept(home, "/work", "far", FAR)
    kept.write(OLD)

    def served(request: httpx2.Request) -> httpx2.Response:
        return answer(kept) if request.url.path == "/token" else httpx2.Response(200)

    auth = SignedIn(FAR, kept, lambda _: None)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(served), auth=auth) as client:
        await client.post(FAR)
    return kept.read()


@pytest.mark.parametrize("content", ["<p>Back soon</p>", '{"refresh_token": "hush-hush"}', "[]"])
async def test_what_is_no_answer_of_oauth_ends_no_sign_in_and_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
):
    def answer(kept: Kept) -> httpx2.Response:
        return httpx2.Response(200, text=content)

    assert await renewing(tmp_path, answer) == OLD
    assert "hush-hush" not in caplog.text


@pytest.mark.parametrize("status", [200, 400, 401])
async def test_a_sign_in_that_is_not_renewed_any_more_has_expired(tmp_path: Path, status: int):
    def answer(kept: Kept) -> httpx2.Response:
        return httpx2.Response(status, json={"error": "invalid_grant"})

    assert await renewing(tmp_path, answer) == replace(OLD, refused=True)


async def test_who_signs_out_while_the_token_is_renewed_stays_signed_out(tmp_path: Path):
    def answer(kept: Kept) -> httpx2.Response:
        kept.remove()
        return httpx2.Response(200, json={"access_token": "more", "token_type": "Bearer"})

    assert await renewing(tmp_path, answer) is None


@pytest.mark.parametrize("said", [{"error": "invalid_grant"}, {"access_token": "more"}])
async def test_who_signs_in_while_the_old_token_is_renewed_stays_signed_in(
    tmp_path: Path, said: dict[str, str]
):
    def answer(kept: Kept) -> httpx2.Response:
        kept.write(NEW)
        return httpx2.Response(200 if "access_token" in said else 400, json=said)

    assert await renewing(tmp_path, answer) == NEW


def test_a_file_that_is_no_sign_in_is_none(tmp_path: Path):
    kept = Kept(tmp_path, "/work", "far", "https://x")
    assert kept.read() is None
    (tmp_path / "oauth").mkdir()
    for text in ("", "[]", "{}", json.dumps({"hosts": 1})):
        kept._path.write_text(text)
        assert kept.read() is None
