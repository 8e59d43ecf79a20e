"""Settings of our processes, read once when a process starts.

Precedence: flag, `EVERTURN_*` variable (or the file that `EVERTURN_<NAME>_FILE` names, for a
secret), the file `everturn.toml` in the home folder or the one that is named by `--config`,
default. Of a table, such as `provider_limits`, each key by itself.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from everturn.commands import NO_LIMITS_SET, CommandLimits
from everturn.errors import UsageError
from everturn.folders import FolderKind
from everturn.hosts import Reach
from everturn_activities.blobs import checked_endpoint, place_of
from everturn_activities.governor.limits import ProviderLimits
from everturn_workers.addresses import checked_address
from everturn_workers.roles import ROLES, Role, read_roles
from everturn_workers.settings_file import SettingsFile, nearest, read_file
from everturn_workers.settings_secrets import (
    PREFIX,
    file_variable,
    from_files,
    parts_to_hide,
    variable,
)

PORT = 7430
SLOTS_MAX = 10_000
VARIABLES = frozenset({"EVERTURN_TEMPORAL_BINARY"})
"""Variables of ours that are no setting: they are read before there are any."""
_OF_TESTS = f"{PREFIX}TEST_"


def default_home() -> Path:
    return Path(platformdirs.user_data_dir("everturn"))


@dataclass(frozen=True)
class Unset:
    """What holds where a setting is not set, in words."""

    words: str


class Settings(BaseSettings):
    """What a process runs under; each field is also `EVERTURN_<NAME>`.

    The README's table is made of the descriptions: `make settings`.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore")

    config: Annotated[Path | None, Unset("`everturn.toml` in the home")] = Field(
        None, description="the file of settings"
    )
    home: Annotated[Path, Unset("the data folder of your user")] = Field(
        default_factory=default_home,
        description="folder of the store, the embedded server's file, logs, and more",
    )
    workspace: Annotated[Path | None, Unset("the nearest folder with `everturn.toml`")] = Field(
        None, description="where agents and tools are read"
    )
    agent: Annotated[str | None, Unset("the workspace's, else `default`")] = Field(
        None, description="who works new sessions"
    )
    model: Annotated[str | None, Unset("the agent's, else `openai/gpt-5-mini`")] = Field(
        None, description="with which model, as `provider/name`"
    )
    session: Annotated[str | None, Unset("a new one")] = Field(
        None, description="which session `run` and `chat` use"
    )
    user: Annotated[str | None, Unset("the tenant's own")] = Field(
        None, description="whose facts a new session reads and keeps"
    )
    folder: Annotated[FolderKind | None, Unset("the agent's, else `shared`")] = Field(
        None, description="where a new session works: `shared`, `worktree` or `copy`"
    )
    host: str = Field(
        "127.0.0.1",
        description="where the API listens; any other address than this machine's own demands"
        " an API key",
    )
    port: int = Field(PORT, ge=0, le=65535, description="port of the API; 0 takes a free one")
    api_url: Annotated[str | None, Unset("the `up` of the home, else host and port")] = Field(
        None,
        description="the API that commands talk with, such as `https://everturn.example.com/agents`",
    )
    api_key: SecretStr | None = Field(
        None, description="what clients send as `Authorization: Bearer`"
    )
    temporal_address: Annotated[str | None, Unset("the embedded server")] = Field(
        None, description="a Temporal server of your own"
    )
    temporal_namespace: str = Field("default", description="namespace on that server")
    task_queue: str = Field("everturn", description="prefix of the queues in Temporal")
    database_url: Annotated[SecretStr | None, Unset("a SQLite file in the home")] = Field(
        None,
        description="the store: `sqlite:///PATH`, or `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`",
    )
    database_connections: int = Field(
        10, ge=2, le=1_000, description="connections of one process to a PostgreSQL, at most"
    )
    redis_url: SecretStr | None = Field(
        None,
        description="a Redis that shares providers' limits between machines, and has what watchers"
        " read; a database of it for each store",
    )
    event_ttl_seconds: int = Field(
        86_400,
        ge=60,
        description="how long events stay in that Redis once a session tells nothing more",
    )
    blobs_url: Annotated[str | None, Unset("the store's rows")] = Field(
        None,
        description="where texts of 32 KiB and more go that tools have said: `s3://BUCKET/PREFIX`,"
        " or `file:///FOLDER` that all workers see",
    )
    blobs_endpoint: Annotated[str | None, Unset("Amazon's")] = Field(
        None,
        description="the address of an S3 that is not Amazon's, such as `http://minio:9000`",
    )
    placement: Literal["auto", "inline", "queued"] = Field(
        "auto",
        description="`inline` or `queued` forces where calls run; `auto` decides by what is known"
        " of each",
    )
    roles: str = Field(
        ",".join(ROLES), description="what `everturn worker` works, with commas between; see below"
    )
    # Turns whose next step is begun at once; an urgent one waits for no more of those behind it.
    # The SDK wants two at least.
    turns_max: int = Field(
        100, ge=2, le=SLOTS_MAX, description="turns whose next step a worker begins at a time"
    )
    models_max: int = Field(
        200, ge=1, le=SLOTS_MAX, description="queued calls of models that a worker makes at a time"
    )
    tools_max: int = Field(
        64, ge=1, le=SLOTS_MAX, description="queued calls of tools that a worker makes at a time"
    )
    inline_max: int = Field(
        200,
        ge=1,
        le=SLOTS_MAX,
        description="quick calls that a worker makes at a time beside its turns",
    )
    # With what comes after, less than the 10 s that a container's engine waits before it kills.
    drain_seconds: float = Field(
        5.0,
        ge=0,
        le=3600,
        description="seconds for which a worker that is told to end lets its calls go on",
    )
    health_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="where a worker answers `/healthz` and `/readyz`; 0 takes a free one",
    )
    health_host: str = Field("127.0.0.1", description="on which address it does so")
    provider_limits: dict[str, ProviderLimits] = Field(
        default_factory=dict,
        description="what providers allow, by address such as `api.openai.com`, by name such as"
        " `anthropic`, or `*`; see below",
        examples=['{"api.openai.com": {"requests_per_minute": 500}}'],
    )
    command_limits: CommandLimits = Field(
        NO_LIMITS_SET,
        description="what a command of an agent may use: `memory_bytes`, `cpu_seconds`,"
        " `processes`, `file_bytes`, `disk_bytes`, `scratch_bytes`, `open_files`, `seconds`",
        examples=['{"memory_bytes": 2147483648, "processes": 256}'],
    )
    unsafe_commands: bool = Field(
        False, description="lets `run_command` run without a sandbox where there is none"
    )
    webhook_hosts: Annotated[str | None, Unset("every public host")] = Field(
        None,
        description="which hosts webhooks may call, with commas between them, such as"
        " `*.example.com,10.0.0.5:8080`",
    )
    schedules_max: int = Field(100, ge=0, description="how many schedules a tenant may have")
    schedule_seconds_min: float = Field(
        60.0, ge=1, description="seconds between two times of a schedule, at least"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="from which weight on log lines are written"
    )
    request_log: Path | None = Field(
        None,
        description="a file that takes every request to a model whole, one JSON object a line,"
        " keys left out",
    )
    history_events_max: Annotated[int, Unset("0, the server's suggestion")] = Field(
        0, ge=0, description="for tests: when a turn continues as new"
    )

    @field_validator("api_url")
    @classmethod
    def _api_address(cls, given: str | None) -> str | None:
        return None if given is None else checked_address(given)

    @field_validator("webhook_hosts")
    @classmethod
    def _hosts(cls, given: str | None) -> str | None:
        Reach.of(_listed(given))
        return given

    @field_validator("blobs_url")
    @classmethod
    def _blobs_place(cls, given: str | None) -> str | None:
        if given is not None:
            place_of(given)
        return given

    @field_validator("blobs_endpoint")
    @classmethod
    def _blobs_endpoint(cls, given: str | None) -> str | None:
        return None if given is None else checked_endpoint(given)

    @field_validator("roles")
    @classmethod
    def _known_roles(cls, given: str) -> str:
        read_roles(given)
        return given

    @property
    def works(self) -> frozenset[Role]:
        """The classes of work that a worker takes."""
        return read_roles(self.roles)

    @property
    def tools_queue(self) -> str:
        """Where every worker that runs tools takes work from."""
        return f"{self.task_queue}-tools"

    def own_queue(self, worker: str) -> str:
        """Where one worker alone takes work from."""
        return f"{self.tools_queue}@{worker}"

    @property
    def webhook_reach(self) -> Reach:
        return Reach.of(_listed(self.webhook_hosts))

    @property
    def store_url(self) -> str:
        """The SQLAlchemy URL of the store."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.home / 'everturn.db'}"

    @property
    def has_homes(self) -> bool:
        """Whether several homes may share the store: one that is in a home is that one's alone."""
        return self.database_url is not None

    @property
    def hidden(self) -> Iterator[tuple[str, str]]:
        """What of the secrets must show nowhere, each with the variable that it is a part of."""
        for name in secret_names():
            secret: SecretStr | None = getattr(self, name)
            if secret is not None:
                for value in parts_to_hide(name, secret.get_secret_value()):
                    yield variable(name), value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        files = from_files(secret_names(), os.environ)
        # The file may name the home only where it is not found by it.
        file = _file({**env_settings(), **init_settings()})
        return (
            init_settings,
            env_settings,
            InitSettingsSource(settings_cls, files),
            InitSettingsSource(settings_cls, dict(file.values)),
        )


def secret_names() -> tuple[str, ...]:
    """The settings that are secrets, or have one in them; each may stand in a file of its own."""
    fields = Settings.model_fields.items()
    return tuple(name for name, field in fields if "SecretStr" in str(field.annotation))


def _listed(hosts: str | None) -> tuple[str, ...] | None:
    if hosts is None:
        return None
    return tuple(host.strip() for host in hosts.split(",") if host.strip())


def read_settings(**flags: object) -> Settings:
    """The settings, flags that are None left to the other sources.

    Raises UsageError with one sentence that names the setting and what is wrong with it.
    """
    given = _given(flags)
    try:
        settings = Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        places = sources(**flags)[str(first["loc"][0])]
        raise UsageError(
            f"Setting {name!r} is wrong: {first['msg']}; mend {' or '.join(places)}."
        ) from None
    except SettingsError as error:
        raise UsageError(_no_object(str(error))) from None
    config = settings.config and settings.config.expanduser().absolute()
    home = settings.home.expanduser().absolute()
    return settings.model_copy(update={"home": home, "config": config})


def sources(**flags: object) -> dict[str, list[str]]:
    """Where each setting comes from, what wins first; more than one only of a table's keys."""
    given = _given(flags)
    environ = {name.upper(): value for name, value in os.environ.items()}
    told: dict[str, Any] = {
        name: given[name] if name in given else environ[variable(name)]
        for name in ("config", "home")
        if name in given or variable(name) in environ
    }
    file = _file(told)
    found = {}
    for name, field in Settings.model_fields.items():
        places = []
        if name in given:
            places.append(f"the flag --{name.replace('_', '-')}")
        if variable(name) in environ:
            places.append(f"the variable {variable(name)}")
        if name in secret_names() and file_variable(name) in environ:
            places.append(f"the file that {file_variable(name)} names")
        if name in file.values:
            places.append(file.place(name))
        found[name] = places if field.examples else places[:1]
    return found


def settings_file(settings: Settings) -> SettingsFile:
    """The file that these settings were read from, which need not exist."""
    return read_file(settings.home, settings.config, Settings.model_fields)


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """A sentence for each variable that looks like a setting and is none."""
    known = {variable(name) for name in Settings.model_fields} | VARIABLES
    known |= {file_variable(name) for name in secret_names()}
    return [
        f"The variable {name} is no setting{nearest(name, known)}; mend or unset it."
        for name in sorted(environ)
        if name.startswith(PREFIX) and name not in known and not name.startswith(_OF_TESTS)
    ]


def _given(flags: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in flags.items() if value is not None}


def _file(told: Mapping[str, Any]) -> SettingsFile:
    home = Path(told["home"]) if "home" in told else default_home()
    config = Path(told["config"]) if told.get("config") else None
    return read_file(home, config, Settings.model_fields)


def _no_object(error: str) -> str:
    """The sentence about a variable that should have been a JSON object."""
    match = re.search(r'field "(\w+)"', error)
    name = match.group(1) if match else "provider_limits"
    [example] = Settings.model_fields[name].examples or ["{}"]
    return f"{variable(name)} is no JSON object such as {example}; mend or unset it."
