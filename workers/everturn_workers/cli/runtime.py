"""The runtime that a command works with: one that runs, or one of its own for a while."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from everturn.client import Client
from everturn.errors import RuntimeUnavailable, UnknownSession
from everturn.views import SessionView
from everturn_workers.cli.active import use
from everturn_workers.cli.options import workspace_of
from everturn_workers.known_session import demand_same
from everturn_workers.settings import Settings
from everturn_workers.up_record import running

STARTING_SECONDS = 60.0

T = TypeVar("T")


def asked(ask: Callable[[Client], Coroutine[None, None, T]], settings: Settings) -> T:
    """What the runtime answers."""

    async def answer() -> T:
        async with reached(settings) as client:
            return await ask(client)

    return asyncio.run(answer())


@asynccontextmanager
async def reached(settings: Settings) -> AsyncIterator[Client]:
    """A client of the API that settings name, else of the runtime on this home, else of the API
    at the settings' host and port."""
    async with await _reaching(settings) as client:
        yield client


@asynccontextmanager
async def reached_or_started(
    settings: Settings, say: Callable[[str], None]
) -> AsyncIterator[tuple[Client, bool]]:
    """As `reached`; where nothing runs on this home, start it and end it afterwards.

    The second part tells whether it was started. Settings that name an API, or a Temporal server
    of their own, mean a runtime that others run.
    """
    url = None if settings.api_url else await _running(settings)
    if url or settings.api_url or settings.temporal_address:
        async with _client(settings, url) as client:
            yield client, False
        return
    from everturn_workers.supervisor import Up

    say("Starting a runtime for this command; 'everturn up' keeps one running.")
    own = settings.model_copy(update={"port": 0, "host": "127.0.0.1"})
    async with Up(own, say):
        url = await _running(settings)
        if url is None:
            raise RuntimeUnavailable(
                f"The runtime that was started has ended; see the logs in {settings.home / 'logs'}."
            )
        async with _client(settings, url) as client:
            yield client, True


async def opened(
    client: Client, settings: Settings, session: str, workspace: Path | None
) -> SessionView:
    """The session of that name; a new one in `workspace`, or the nearest, where there is none.

    It is the session that `--continue` goes on with from now on.
    Raises IdempotencyConflict where it is of another workspace or user than the settings name.
    Agent and model are each message's own.
    """
    if settings.session:
        try:
            known = await client.session(session)
        except UnknownSession:
            pass
        else:
            if settings.workspace is not None:
                demand_same(known, workspace=str(workspace_of(settings, Path.cwd())))
            demand_same(known, user=settings.user, folder=settings.folder)
            use(settings.home, known.id)
            return known
    made = await client.create_session(
        session,
        workspace=str(workspace or workspace_of(settings, Path.cwd())),
        agent=settings.agent,
        model=settings.model,
        user=settings.user,
        folder=settings.folder,
    )
    use(settings.home, made.id)
    return made


async def _reaching(settings: Settings) -> Client:
    return _client(settings, None if settings.api_url else await _running(settings))


async def _running(settings: Settings) -> str | None:
    """Where the API of the `up` on this home listens; waits while that is starting."""
    give_up = time.monotonic() + STARTING_SECONDS
    while (up := running(settings.home)) is not None:
        if up.api_url is not None:
            return up.api_url
        if time.monotonic() > give_up:
            raise RuntimeUnavailable(
                f"The 'everturn up' on {settings.home} (process {up.pid}) is not ready after"
                f" {STARTING_SECONDS:.0f} s; see the logs in {settings.home / 'logs'}."
            )
        await asyncio.sleep(0.1)
    return None


def _address(settings: Settings) -> str:
    if settings.api_url is not None:
        return settings.api_url
    host = settings.host if settings.host not in ("0.0.0.0", "::") else "127.0.0.1"  # noqa: S104
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def _client(settings: Settings, up_url: str | None) -> Client:
    """A client of the `up` at `up_url`, which starts an API that died again, or of the API at
    the settings' address."""
    key = settings.api_key.get_secret_value() if settings.api_key is not None else None
    return Client(up_url or _address(settings), key, kept_alive=up_url is not None)
