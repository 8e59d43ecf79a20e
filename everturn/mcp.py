"""MCP servers as an operator names them, and what they offer: pinned by digests, named legally."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from everturn.hosts import Reach
from everturn.messages import Frozen
from everturn.tools import TOOL_TIMEOUT_SECONDS, Effect

Lifecycle = Literal["none", "frozen", "hot"]
"""Whether an agent has servers, and whether what they offer may change within a session."""

PREFIX = "mcp_"
SOURCE = "mcp:"
"""How the `source` of a server's tool begins; the server's name follows."""

NAME_MAX = 64
TOOLS_MAX = 256
"""Tools of one server that are offered; more would fill most windows."""

_SERVER = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_VARIABLE = r"[A-Z][A-Z0-9_]*"
# A header may say how its secret is used, as in "Bearer ${TOKEN}"; no secret fits beside that.
_HEADER = re.compile(rf"(?:[A-Za-z][A-Za-z-]{{0,15}} )?\$\{{({_VARIABLE})\}}|({_VARIABLE})")


class OAuthConfig(Frozen):
    """`[mcp.servers.NAME.oauth]`: the client that everturn is known as where people sign in; it
    registers itself without one. `client_secret` names a secret, or a worker's variable."""

    client_id: str | None = Field(default=None, min_length=1)
    client_secret: str | None = Field(default=None, pattern=f"^{_VARIABLE}$")
    scope: str | None = None

    @model_validator(mode="after")
    def _whose(self) -> "OAuthConfig":
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("client_secret goes with a client_id; write that too")
        return self


class ServerConfig(Frozen):
    """`[mcp.servers.NAME]`: a program that speaks MCP on its stdin and stdout, or an address.

    `env` gives the program variables: by its own names, those of the workspace's secrets, or of
    the worker's variables, whose values it gets; it sees no others but what any program needs.
    `headers` are sent to `url`, each with the value of such a one. `allowed_hosts` are those that
    `url` may lead to, by default its own. `oauth` says as whom people sign in there. `effect` is
    what calling any of its tools twice would do, `effects` the same for some by their names there:
    what the server says of that does not count.
    `stateful`: it remembers what a session did, so each session has one of its own, on one
    worker. Where one that is `required` cannot be launched, the turn ends.
    """

    command: str | None = Field(default=None, min_length=1)
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    allowed_hosts: tuple[str, ...] | None = None
    oauth: OAuthConfig | None = None
    effect: Effect = "once"
    effects: dict[str, Effect] = Field(default_factory=dict)
    stateful: bool = False
    required: bool = True
    timeout_seconds: float = Field(default=TOOL_TIMEOUT_SECONDS, gt=0, le=86_400)
    launch_seconds: float = Field(default=60.0, gt=0, le=600)

    @field_validator("env", mode="before")
    @classmethod
    def _mapped(cls, given: object) -> object:
        """A list of names gives each variable under the name that it has here."""
        if isinstance(given, list | tuple):
            return {str(name): str(name) for name in given}
        return given

    @field_validator("env")
    @classmethod
    def _named(cls, given: dict[str, str]) -> dict[str, str]:
        for name, variable in given.items():
            if not re.fullmatch(_VARIABLE, variable):
                raise ValueError(
                    f"env gives {name} what is no name of a variable; write the name of the"
                    " variable of your environment that has the value"
                )
        return given

    @field_validator("headers")
    @classmethod
    def _by_name(cls, given: dict[str, str]) -> dict[str, str]:
        for name, value in given.items():
            if not _HEADER.fullmatch(value):
                raise ValueError(
                    f"the header {name} names no variable; write one whose value is sent, such"
                    ' as "Bearer ${MY_TOKEN}"'
                )
        return given

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, given: tuple[str, ...] | None) -> tuple[str, ...] | None:
        Reach.of(given)
        return given

    @model_validator(mode="after")
    def _one_way(self) -> "ServerConfig":
        if (self.command is None) == (self.url is None):
            raise ValueError("a server has either a command or a url")
        if self.url is not None and not re.match(r"https?://[^/?#@\s]+(?:[/?#]|$)", self.url):
            raise ValueError(
                f"the url {self.url!r} does not begin with http:// or https:// and a host"
            )
        if self.url is not None:
            try:
                _ = self.reach
            except ValueError:
                raise ValueError(
                    f"the url {self.url!r} has no host and port as one writes them"
                ) from None
        if self.url is not None and (self.args or self.env):
            raise ValueError("args and env go with a command; a url has headers")
        if self.command is not None and (self.headers or self.allowed_hosts is not None):
            raise ValueError("headers and allowed_hosts go with a url; a command has env")
        if self.oauth is not None and self.command is not None:
            raise ValueError("oauth goes with a url; a command has env")
        if self.oauth is not None and any(one.lower() == "authorization" for one in self.headers):
            raise ValueError("a server has either oauth or a header Authorization")
        return self

    @property
    def identity(self) -> tuple[str, ...]:
        """What is run or called: another is another server, whatever its name."""
        return (self.url,) if self.url is not None else (self.command or "", *self.args)

    @property
    def reach(self) -> Reach:
        """What the server's address may lead to: what is listed, by default its own host.

        An address that the operator wrote is listed with that; a name that leads to an address
        that is not public is not.
        """
        if self.allowed_hosts is not None:
            return Reach.of(self.allowed_hosts)
        assert self.url is not None
        parts = urlsplit(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return Reach.of((f"{host}:{port}",))

    @property
    def shown(self) -> str:
        return " ".join(self.identity)


def header_variable(value: str) -> tuple[str, str]:
    """What stands before the value of a header's variable, and the variable's name."""
    found = _HEADER.fullmatch(value)
    assert found is not None
    if found[2] is not None:
        return "", found[2]
    return value[: found.start(1) - 2], found[1]


def demand_server_name(name: str) -> None:
    """Raise ValueError where no server can be called so."""
    if not _SERVER.fullmatch(name):
        raise ValueError(
            f"the server's name {name!r} must begin with a small letter and have at most 32 of"
            " a-z, 0-9, '_' and '-'"
        )


class Offer(Frozen):
    """A tool as its server tells of it."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    annotations: dict[str, Any] = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        return _digest([self.name, self.description, self.parameters, self.annotations])


class Argument(Frozen):
    """What a prompt wants to be told."""

    name: str
    description: str = ""
    required: bool = False


class Prompt(Frozen):
    """A prompt as its server tells of it, with its arguments in order."""

    name: str
    description: str = ""
    arguments: tuple[Argument, ...] = ()


class Catalogue(Frozen):
    """All that a server offers, and who it is; `version` is what it says of itself.

    `has_resources`: it says that there is something to be read. Neither that nor `prompts` is part
    of the digest: no model is told of what they hold before a person asks for it, or it does.
    """

    identity: tuple[str, ...]
    version: str = ""
    offers: tuple[Offer, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    has_resources: bool = False

    @property
    def digest(self) -> str:
        offers = sorted(offer.digest for offer in self.offers)
        return _digest([list(self.identity), self.version, offers])


class Server(Frozen):
    """A server of a turn's agent. While its tools were not asked for yet, `catalogue` is None."""

    name: str
    config: ServerConfig
    catalogue: Catalogue | None = None


def _digest(value: object) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def tool_name(server: str, tool: str) -> str:
    """The name that a model is told: one that every provider takes."""
    name = _ILLEGAL.sub("_", f"{PREFIX}{server}_{tool}")
    if len(name) <= NAME_MAX:
        return name
    # Long names that differ at their ends only must still differ.
    mark = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{name[: NAME_MAX - 7]}_{mark}"


def named(server: str, offers: Iterable[Offer], taken: Mapping[str, str]) -> tuple[
    dict[str, Offer], list[str]
]:  # fmt: skip
    """The offers by their legal names, and which of them have none left, in sentences.

    `taken` says whose the names are that cannot be given any more.
    """
    found: dict[str, Offer] = {}
    problems = []
    owners = dict(taken)
    for offer in sorted(offers, key=lambda one: one.name):
        name = tool_name(server, offer.name)
        if name in owners:
            problems.append(
                f"Tool {offer.name!r} of server {server} is left out: its name would be {name},"
                f" which is that of {owners[name]}."
            )
            continue
        owners[name] = f"tool {offer.name!r} of server {server}"
        found[name] = offer
    return found, problems


def differences(pinned: Catalogue, found: Catalogue) -> str:
    """How what a server offers differs from what was pinned, as the end of a sentence."""
    if pinned.identity != found.identity:
        return "it is started by another command or reached at another address"
    before = {offer.name: offer.digest for offer in pinned.offers}
    after = {offer.name: offer.digest for offer in found.offers}
    told = []
    changed = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    for what, names in (
        ("describes otherwise", changed),
        ("offers no more", sorted(before.keys() - after.keys())),
        ("newly offers", sorted(after.keys() - before.keys())),
    ):
        if names:
            told.append(f"it {what} {_listed(names)}")
    if not told:
        told.append(f"its version was {pinned.version!r} and is {found.version!r}")
    return ", and ".join(told)


def still(pinned: Iterable[Server], given: Iterable[Server]) -> tuple[Server, ...]:
    """The pinned servers under their settings of today. Raises ValueError, with a sentence, where
    one is no longer there, or is another: only an operator says what is run."""
    today = {server.name: server for server in given}
    found = []
    for server in pinned:
        now = today.get(server.name)
        if now is None:
            raise ValueError(
                f"The session began with MCP server {server.name}, which its agent has no more."
            )
        if now.config.identity != server.config.identity:
            raise ValueError(
                f"The session began with another MCP server {server.name}: its command or address"
                " was changed."
            )
        found.append(now.model_copy(update={"catalogue": server.catalogue}))
    return tuple(found)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:80]) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
