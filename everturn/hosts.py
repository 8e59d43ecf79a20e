"""Which hosts may be reached: names and addresses that a person lists, and what is public."""

import re
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

WEB_PORTS = frozenset({80, 443})
ANY_PORT = "*"

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}")
# What some resolvers take for an address: 127.1, 2130706433, 0x7f.1, 0177.0.0.1.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Python calls these global, or may: shared, for protocols, for relays, Azure's own.
_NEVER_PUBLIC = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "100.64.0.0/10", "168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24"),
        *("198.18.0.0/15", "224.0.0.0/3", "2001::/23", "2001:db8::/32", "2002::/16"),
    )
)
_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


@dataclass(frozen=True)
class HostRule:
    """One entry of a list: a name, `*.` and a name, `*`, an address or a network; with a port,
    or with `:*` for any, else for the ports of the web."""

    name: str | None = None
    network: Network | None = None
    port: int | None = None
    any_port: bool = False

    def allows_port(self, port: int) -> bool:
        return self.any_port or (port == self.port if self.port else port in WEB_PORTS)

    def names(self, host: str) -> bool:
        if self.name is None:
            return False
        if self.name.startswith("*."):
            return host.endswith(self.name[1:])
        return self.name in ("*", host)


def host_rule(text: str) -> HostRule:
    """The rule that `text` says. Raises ValueError with a sentence for what says none."""
    host, port = _split(text.strip().lower())
    given = int(port) if port.isdigit() else None
    if port not in ("", ANY_PORT) and not (given is not None and 0 < given < 65536):
        raise ValueError(f"{text!r} has no port from 1 to 65535; write it as host:8080")
    any_port = port == ANY_PORT
    try:
        return HostRule(network=ip_network(host), port=given, any_port=any_port)
    except ValueError:
        pass
    plain = host.removeprefix("*.")
    if host != "*" and (not _NAME.fullmatch(plain) or _ends_in_number(plain)):
        raise ValueError(
            f"{text!r} is no host; write a name such as example.com or *.example.com, an address,"
            " or a network such as 10.0.0.0/8, each with a port where it is not 80 or 443"
        )
    return HostRule(name=host, port=given, any_port=any_port)


def _split(text: str) -> tuple[str, str]:
    """Host and port; an IPv6 address with a port stands in brackets."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port or "none"
    return text, ""


def _ends_in_number(host: str) -> bool:
    return _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


@dataclass(frozen=True)
class Reach:
    """What may be reached. Without a list that is every public host, on the ports of the web.

    A name that is listed reaches public addresses; one that is not public must be listed
    itself, for whoever owns the name decides where it leads.
    """

    rules: tuple[HostRule, ...] | None = None

    @classmethod
    def of(cls, listed: tuple[str, ...] | None) -> "Reach":
        return cls(None if listed is None else tuple(host_rule(text) for text in listed))

    def refused_host(self, host: str, port: int) -> str | None:
        """Why `host`, as it stands in a URL, is not to be looked up; None where it may be."""
        address = literal(host)
        if address is None and (not _NAME.fullmatch(host) or _ends_in_number(host)):
            return f"{host} is neither a name nor an address as one writes it"
        if self.rules is None:
            return None if port in WEB_PORTS else f"port {port} is not one of the web's"
        for rule in self.rules:
            named = rule.names(host) if address is None else _holds(rule, address)
            if (named or (rule.name == "*" and address is not None)) and rule.allows_port(port):
                return None
        return f"{host}:{port} is not among the allowed hosts"

    def refused_address(self, address: Address, port: int) -> str | None:
        """Why an address that a host has led to is not to be connected to."""
        if is_public(address):
            return None
        for rule in self.rules or ():
            if _holds(rule, address) and rule.allows_port(port):
                return None
        # Which address it is would tell of the network that this machine is in.
        return "it leads to an address that is not public"


def literal(host: str) -> Address | None:
    """The address that `host` is."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _holds(rule: HostRule, address: Address) -> bool:
    if rule.network is None:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address in rule.network


def is_public(address: Address) -> bool:
    """Whether anybody may be there, and not this machine, its network or its provider."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
        if address not in _UNICAST or address.scope_id is not None:
            return False
    return address.is_global and not any(address in network for network in _NEVER_PUBLIC)
