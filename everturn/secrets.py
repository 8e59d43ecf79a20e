"""Secrets as settings name them: where a value is, and never the value."""

from typing import Any

from pydantic import Field, model_validator

from everturn.messages import Frozen

UPPER_NAME = r"^[A-Z][A-Z0-9_]*$"
"""Upper case only, so that a secret can be a variable of a command by its own name."""

SOURCES = ("env", "file", "keyring")


class SecretSource(Frozen):
    """Where a secret is found: one of a variable of the worker's environment, a file (relative to
    the workspace), or `service/user` of the system's keyring."""

    env: str | None = Field(default=None, min_length=1)
    file: str | None = Field(default=None, min_length=1)
    keyring: str | None = Field(default=None, pattern=r"^[^/]+/.+$")

    @model_validator(mode="before")
    @classmethod
    def _no_value(cls, given: Any) -> Any:
        # Before anything quotes it: it may be the secret itself.
        if not isinstance(given, dict):
            raise ValueError(
                'a secret is a table that says where it is, such as {env = "NAME"}, {file ='
                ' "PATH"} or {keyring = "SERVICE/USER"}, and never its value'
            )
        if len([name for name in SOURCES if name in given]) != 1 and given.keys() <= {*SOURCES}:
            raise ValueError(f"a secret has one of {', '.join(SOURCES)}, and no second")
        return given

    def __str__(self) -> str:
        if self.env is not None:
            return f"variable {self.env}"
        if self.file is not None:
            return f"file {self.file}"
        return f"keyring {self.keyring}"
