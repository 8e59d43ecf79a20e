"""What the runtime needs of this machine: each thing checked, with what to do where it lacks."""

import asyncio
import os
import platform
import socket
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from everturn.agents import Agent
from everturn.errors import UnknownModel, UsageError
from everturn_activities.gateways.choose import check_model, provider_of
from everturn_activities.sandbox import probe
from everturn_activities.vault import Vault
from everturn_activities.workspace import load
from everturn_workers.check import Check
from everturn_workers.check_blobs import check_blobs
from everturn_workers.check_redis import check_redis
from everturn_workers.check_settings import check_settings
from everturn_workers.check_store import check_store
from everturn_workers.check_temporal import check_temporal
from everturn_workers.settings import Settings
from everturn_workers.up_record import running

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


async def checks(settings: Settings, environment: Mapping[str, str] = os.environ) -> list[Check]:
    """All checks, in the order in which a first start meets them. Leaves nothing behind.

    Servers are asked side by side, each for a few seconds at most.
    """
    servers = await asyncio.gather(
        check_temporal(settings),
        check_store(settings),
        check_redis(settings),
        check_blobs(settings),
    )
    here = await asyncio.gather(
        asyncio.to_thread(_sandbox, settings),
        asyncio.to_thread(_workspace_and_model, settings, environment),
        asyncio.to_thread(_secrets, settings, environment),
    )
    return [
        Check("python", True, f"Python {platform.python_version()} runs."),
        _home(settings.home),
        *check_settings(settings, environment),
        *chain(*servers, *here),
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


def _sandbox(settings: Settings) -> list[Check]:
    status = probe()
    if status.available:
        return [Check("sandbox", True, "run_command works in bubblewrap.")]
    if settings.unsafe_commands:
        told = "run_command works without a sandbox, as you have set it."
        return [Check("sandbox", True, told)]
    return [
        Check(
            "sandbox",
            False,
            f"run_command is refused, since {status.reason}.",
            "Install bubblewrap, and allow user namespaces where the system forbids them.",
        )
    ]


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
