"""What the runtime needs of this machine: each thing checked, with what to do where it lacks."""

import asyncio
import os
import platform
import socket
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from everturn.agents import Agent
from everturn.errors import UnknownModel, UsageError
from everturn_activities.gateways.choose import check_model, provider_of
from everturn_activities.governor.limits import Limits
from everturn_activities.sandbox import probe
from everturn_activities.vault import Vault
from everturn_activities.workspace import load
from everturn_workers import fetch
from everturn_workers.server import answers
from everturn_workers.settings import Settings
from everturn_workers.up_record import running

REACH_SECONDS = 5.0
_MEND_SECRETS = "See `everturn secrets list`; mend [secrets] of everturn.toml where it is wrong."

# The variables of which one must be set, by provider.
# Providers that are not named here are for the first call to judge.
KEYS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "azure": ("AZURE_API_KEY",),
    "cohere": ("COHERE_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"),
    "xai": ("XAI_API_KEY",),
}


@dataclass(frozen=True)
class Check:
    """One thing: what was found, in a sentence, and what to do where it is not `ok`."""

    name: str
    ok: bool
    sentence: str
    mend: str | None = None


async def checks(settings: Settings, environment: Mapping[str, str] = os.environ) -> list[Check]:
    """All checks, in the order in which a first start meets them. Changes nothing."""
    return [
        Check("python", True, f"Python {platform.python_version()} runs."),
        _home(settings.home),
        await _temporal(settings),
        await _store(settings),
        *await _redis(settings),
        await asyncio.to_thread(_sandbox, settings),
        *await asyncio.to_thread(_workspace_and_model, settings, environment),
        *await asyncio.to_thread(_secrets, settings, environment),
        _port(settings),
    ]


def _home(home: Path) -> Check:
    there = next(path for path in (home, *home.parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        found = "is writable" if there == home else "will be made at the first start"
        return Check("home", True, f"The home folder {home} {found}.")
    return Check(
        "home",
        False,
        f"The home folder {home} cannot be written to.",
        "Set EVERTURN_HOME to a folder of yours.",
    )


async def _temporal(settings: Settings) -> Check:
    up = running(settings.home)
    address = settings.temporal_address or (up.temporal_address if up else None)
    if address is not None:
        namespace = settings.temporal_namespace
        if await answers(address, namespace, REACH_SECONDS):
            return Check("temporal", True, f"Temporal answers at {address}.")
        return Check(
            "temporal",
            False,
            f"No Temporal server answers at {address} for the namespace {namespace!r}.",
            "Start it, or unset EVERTURN_TEMPORAL_ADDRESS to use the embedded one.",
        )
    try:
        binary = await asyncio.to_thread(fetch.find)
    except UsageError as error:
        return Check("temporal", False, str(error), "Set EVERTURN_TEMPORAL_BINARY anew.")
    if binary is None:
        return Check(
            "temporal",
            False,
            "No Temporal server is on this machine yet.",
            "`everturn up` obtains one, which can take minutes; or put `temporal` on PATH.",
        )
    version = await asyncio.to_thread(fetch.version, binary)
    return Check("temporal", True, f"The Temporal server is {binary} ({version}).")


async def _store(settings: Settings) -> Check:
    url = urlsplit(settings.store_url)
    if url.scheme.startswith("sqlite"):
        return _sqlite(Path(url.path.removeprefix("/")) if url.path else Path())
    # The address without the person and the password that the URL can hold.
    address = f"{url.hostname}:{url.port or 5432}"
    try:
        async with asyncio.timeout(REACH_SECONDS):
            _, writer = await asyncio.open_connection(url.hostname, url.port or 5432)
            writer.close()
            await writer.wait_closed()
    except (OSError, TimeoutError):
        return Check(
            "store",
            False,
            f"No database answers at {address}.",
            "Start it, or unset EVERTURN_DATABASE_URL to use a file in the home folder.",
        )
    return Check("store", True, f"A database answers at {address}.")


async def _redis(settings: Settings) -> list[Check]:
    """Whether the Redis of the governor answers, and what it holds back."""
    if settings.redis_url is None:
        return []
    from everturn_activities.governor.redis import RedisGovernor

    url = settings.redis_url.get_secret_value()
    try:
        governor = RedisGovernor(url, Limits())
    except UsageError as error:
        return [Check("redis", False, str(error), "Or unset it.")]
    state = await governor.state() if await governor.answers() else None
    await governor.close()
    address = urlsplit(url).netloc.rpartition("@")[2]
    if state is None or state.note is not None:
        return [
            Check(
                "redis",
                False,
                f"No Redis answers at {address}: each process governs its model calls alone.",
                "Start it, or unset EVERTURN_REDIS_URL.",
            )
        ]
    held = [f"{key.provider} is paused" for key in state.keys if key.paused_seconds]
    held += [f"{one.model} fails" for one in state.breakers if one.state != "closed"]
    what = f"; now {', '.join(held)}" if held else ""
    return [Check("redis", True, f"Redis answers at {address}{what}.")]


def _sqlite(file: Path) -> Check:
    if not file.exists():
        return Check("store", True, f"The store {file} will be made at the first start.")
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        try:
            connection.execute("PRAGMA schema_version").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        return Check(
            "store",
            False,
            f"The store {file} cannot be read: {error}.",
            "Put a backup in its place, or move it away to begin anew.",
        )
    return Check("store", True, f"The store {file} can be read.")


def _sandbox(settings: Settings) -> Check:
    status = probe()
    if status.available:
        return Check("sandbox", True, "run_command works in bubblewrap.")
    if settings.unsafe_commands:
        return Check("sandbox", True, "run_command works without a sandbox, as you have set it.")
    return Check(
        "sandbox",
        False,
        f"run_command is refused, since {status.reason}.",
        "Install bubblewrap, and allow user namespaces where the system forbids them.",
    )


def _workspace_and_model(settings: Settings, environment: Mapping[str, str]) -> list[Check]:
    """The workspace is checked where settings name one; its agent's model is then meant."""
    if settings.workspace is None:
        model = settings.model or Agent().model
        return [_model(Agent(model=model), environment)]
    try:
        workspace = load(settings.workspace)
        agent = workspace.spec(settings.agent, settings.model).agent
    except UsageError as error:
        return [Check("workspace", False, str(error), "Mend it, or choose another --workspace.")]
    found = f"The workspace {settings.workspace} can be read."
    lacking = [Check("tools", False, note, "Then start again.") for note in workspace.notes]
    return [Check("workspace", True, found), *lacking, _model(agent, environment)]


def _secrets(settings: Settings, environment: Mapping[str, str]) -> list[Check]:
    """Whether the workspace's secrets are there, and in files that nobody else may read."""
    if settings.workspace is None:
        return []
    try:
        workspace = load(settings.workspace)
    except UsageError:
        return []
    named = workspace.settings.secrets
    missing = Vault(environment).missing(workspace.path, named, named)
    found = [Check("secrets", False, reason, _MEND_SECRETS) for reason in missing.values()]
    for name, source in named.items():
        if name in missing or source.file is None:
            continue
        path = workspace.path / Path(source.file).expanduser()
        if path.stat().st_mode & 0o077:
            sentence = f"Other users may read the file {source.file} of secret {name}."
            found.append(Check("secrets", False, sentence, f"chmod 600 {path}"))
    if not found and named:
        found = [Check("secrets", True, f"Secrets that are there: {', '.join(sorted(named))}.")]
    return found


def _model(agent: Agent, environment: Mapping[str, str]) -> Check:
    model = agent.model
    if (variable := agent.api_key_variable) is not None and not environment.get(variable):
        return Check("model", False, f"The model {model} has no key.", f"Set {variable}.")
    if agent.base_url is not None:
        return Check("model", True, f"The model {model} is served at {agent.base_url}.")
    try:
        check_model(model)
    except UnknownModel as error:
        return Check("model", False, str(error), "Choose another with --model or EVERTURN_MODEL.")
    names = (variable,) if variable else KEYS.get(provider_of(model) or "", ())
    if not names:
        return Check("model", True, f"The model {model} has no key that could be checked here.")
    set_name = next((name for name in names if environment.get(name)), None)
    if set_name is not None:
        return Check("model", True, f"The model {model} has its key in {set_name}.")
    if names[0] == "OPENAI_API_KEY" and environment.get("OPENAI_BASE_URL"):
        return Check("model", True, f"The model {model} is served at OPENAI_BASE_URL, keyless.")
    return Check(
        "model",
        False,
        f"The model {model} has no key.",
        f"Set {' or '.join(names)}, or choose another model with --model.",
    )


def _port(settings: Settings) -> Check:
    up = running(settings.home)
    if up is not None and up.api_url is not None:
        return Check("port", True, f"The API of this home answers at {up.api_url}.")
    try:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((settings.host, settings.port))
    except OSError as error:
        return Check(
            "port",
            False,
            f"The API cannot listen on {settings.host}:{settings.port}: {error.strerror}.",
            "Choose another with --port or EVERTURN_PORT.",
        )
    return Check("port", True, f"Port {settings.port} is free for the API.")
