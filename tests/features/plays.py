"""A workspace worked by a real worker against the scripted endpoint, whose log tests read."""

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from harness import Bench

from everturn.events import Event
from everturn.messages import user_text
from everturn.session import SessionKey
from everturn_activities.gateways.choose import Gateways
from everturn_activities.gateways.scripted import Script
from everturn_activities.store import Inbound
from everturn_activities.workspaces import Workspaces
from everturn_workers.scripted_model import ScriptedModel
from everturn_workers.worker import running_worker


class _Quiet(uvicorn.Server):
    """Signals are the test's."""

    def capture_signals(self) -> Any:
        return nullcontext()


@dataclass
class Endpoint:
    """The scripted model over HTTP, and its log of requests."""

    url: str
    log: io.StringIO

    @property
    def requests(self) -> list[dict[str, Any]]:
        lines = map(json.loads, self.log.getvalue().splitlines())
        return [line["request"] for line in lines if line["event"] == "received"]


@asynccontextmanager
async def scripted_endpoint(**script: Any) -> AsyncIterator[Endpoint]:
    log = io.StringIO()
    app = ScriptedModel(Script.model_validate(script), log, bodies=True)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, lifespan="off", log_level="error", access_log=False)
        server = _Quiet(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", log)
        server.should_exit = True
        await serving


@dataclass
class Play:
    """What came of a play: the requests that the endpoint logged, and the session's events."""

    made: Bench
    key: SessionKey
    requests: list[dict[str, Any]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def system(self) -> str:
        """The system prompt of the first request."""
        return system_of(self.requests[0])

    @property
    def warnings(self) -> list[str]:
        return [event.body["text"] for event in self.events if event.type == "status"]


def system_of(request: Mapping[str, Any]) -> str:
    first = request["messages"][0]
    return str(first["content"]) if first["role"] == "system" else ""


def tools_of(request: Mapping[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in request.get("tools", ())]


def write(made: Bench, files: Mapping[str, str]) -> None:
    """Write files of the workspace."""
    for name, text in files.items():
        path = made.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def play(
    made: Bench,
    *turns: str | tuple[str, str] | Mapping[str, str],
    replies: Sequence[Any] = (),
    files: Mapping[str, str] | None = None,
    profile: str | None = None,
    session: str = "s",
    model: str | None = "hosted_vllm/scripted",
    **script: Any,
) -> Play:
    """Work `turns`, each a text or an agent's name and a text, in a workspace of `files`; a
    mapping between them is of files that are written then.

    All agents have `profile` that name no other; the endpoint answers every turn by `replies`.
    """
    async with scripted_endpoint(replies=replies, **script) as endpoint:
        settings = f'[model]\nbase_url = "{endpoint.url}"\n'
        settings += f'name = "{model}"\n' if model else ""
        settings += f'[agent]\nprofile = "{profile}"\n' if profile else ""
        given = dict(files or {})
        given["everturn.toml"] = settings + given.get("everturn.toml", "")
        write(made, given)
        key = await made.session(session)
        before = await made.runtime.store.turns(key)
        played = Play(made, key)
        gateways = Gateways({}, made.runtime.vault)
        async with running_worker(
            made.client,
            made.runtime,
            made.settings,
            gateways,
            Workspaces(),
            Workspaces(services=made.runtime.services),
            workflows_cached=0,
        ):
            number = len(before)
            for turn in turns:
                if isinstance(turn, Mapping):
                    write(
                        made,
                        {name: text.replace("URL", endpoint.url) for name, text in turn.items()},
                    )
                    continue
                number += 1
                agent, text = (None, turn) if isinstance(turn, str) else turn
                made.sent += 1
                inbound = Inbound(f"m{made.sent}", "message", user_text(text), agent=agent)
                await made.front.accept(key, inbound)
                played.events = await made.until(key, "turn_finished", turn=number)
            await made.closed(key)
        await gateways.close()
        played.requests = endpoint.requests
    return played
