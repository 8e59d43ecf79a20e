"""Settings of our processes, read once when a process starts.

Precedence: flag, `EVERTURN_*` variable, `config.toml` in the home folder, default.
"""

import difflib
from pathlib import Path
from typing import Literal

import platformdirs
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from everturn.commands import NO_LIMITS_SET, CommandLimits
from everturn.errors import UsageError
from everturn.folders import FolderKind
from everturn_activities.governor.limits import ProviderLimits

PORT = 7430


def default_home() -> Path:
    return Path(platformdirs.user_data_dir("everturn"))


class Settings(BaseSettings):
    """What a process runs under; each field is also `EVERTURN_<NAME>`.

    `temporal_address` and `database_url` unset mean the embedded server and the SQLite
    file in `home`; `redis_url` set shares the governor's state between machines.
    `provider_limits` are by provider: its address such as `api.openai.com`,
    its name such as `anthropic`, or `*`. `request_log` is a file that takes every request to
    a model, whole. `command_limits` are what a command of an agent may use. `placement` forces
    every call inline or queued; `auto` decides by what is known of the call.
    """

    model_config = SettingsConfigDict(env_prefix="EVERTURN_", extra="ignore")

    home: Path = Field(default_factory=default_home)
    temporal_address: str | None = None
    temporal_namespace: str = "default"
    database_url: str | None = None
    task_queue: str = "everturn"
    host: str = "127.0.0.1"
    port: int = Field(default=PORT, ge=0, le=65535)
    api_key: SecretStr | None = None
    workspace: Path | None = None
    agent: str | None = None
    model: str | None = None
    session: str | None = None
    user: str | None = None
    folder: FolderKind | None = None
    placement: Literal["auto", "inline", "queued"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    unsafe_commands: bool = False
    request_log: Path | None = None
    history_events_max: int = Field(default=0, ge=0)
    redis_url: SecretStr | None = None
    provider_limits: dict[str, ProviderLimits] = Field(default_factory=dict)
    command_limits: CommandLimits = NO_LIMITS_SET

    @property
    def store_url(self) -> str:
        """The SQLAlchemy URL of the store."""
        return self.database_url or f"sqlite:///{self.home / 'everturn.db'}"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        first = {**env_settings(), **init_settings()}
        home = Path(first["home"]) if "home" in first else default_home()
        file = TomlConfigSettingsSource(settings_cls, home / "config.toml")
        for name in file.toml_data.keys() - settings_cls.model_fields.keys():
            near = difflib.get_close_matches(name, settings_cls.model_fields, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise UsageError(f"config.toml: unknown setting {name!r}{hint}; mend or remove it.")
        return init_settings, env_settings, file


_OBJECTS = {
    "provider_limits": '{"api.openai.com": {"requests_per_minute": 500}}',
    "command_limits": '{"memory_bytes": 2147483648, "processes": 256}',
}


def read_settings(**flags: object) -> Settings:
    """The settings, flags that are None left to the other sources.

    Raises UsageError with one sentence that names the setting and what is wrong with it.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        variable = f"EVERTURN_{str(first['loc'][0]).upper()}"
        raise UsageError(
            f"Setting {name!r} is wrong: {first['msg']}; set {variable} or the flag."
        ) from None
    except SettingsError as error:
        name = "command_limits" if "command_limits" in str(error) else "provider_limits"
        raise UsageError(
            f"EVERTURN_{name.upper()} is no JSON object such as {_OBJECTS[name]}; mend or unset it."
        ) from None
    except ValueError as error:
        raise UsageError(f"config.toml cannot be read: {error}; mend or remove it.") from None
    return settings.model_copy(update={"home": settings.home.expanduser().absolute()})
