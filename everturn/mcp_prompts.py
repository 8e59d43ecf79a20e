"""What a person asks of MCP servers by `/mcp_<server>_<prompt>` and `@<server>:<uri>`."""

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from everturn.errors import UsageError
from everturn.mcp import PREFIX, Prompt, Server, tool_name
from everturn.messages import PromptInvocation, ResourceMention, UserMessage

MENTIONS_MAX = 10
PROMPTS_MAX = 256
"""Prompts of one server that are known."""

_NAMED_MAX = 20
_INVOCATION = re.compile(rf"/({PREFIX}[A-Za-z0-9_-]+)(?:\s+(.*))?", re.DOTALL)
_MENTION = re.compile(r"(?<!\S)@([a-z][a-z0-9_-]{0,31}):([A-Za-z][A-Za-z0-9+.-]*:\S+)")
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)=(.*)", re.DOTALL)
# What ends a sentence, or encloses the mention, is none of the address.
_BEHIND = ".,;:!?)]}>'\""


@dataclass(frozen=True)
class Due:
    """A message, at its position in the transcript, of which a part is still to be rendered; or
    one of the inbox that waits, and `steers` the turn."""

    position: int
    message: UserMessage
    steers: bool = False


@dataclass(frozen=True)
class Rendering:
    """What a message came to; None where it cannot be had, for the reason `problem`."""

    due: Due
    message: UserMessage | None
    problem: str = ""


def invocation(text: str, servers: Iterable[Server]) -> PromptInvocation | None:
    """The prompt that `text` asks for, None where it asks for none, or there are no servers.

    Raises UsageError for what can be none of theirs, and, of those that are pinned, for what they
    do not have, or lack an argument of.
    """
    found = _INVOCATION.fullmatch(text.strip())
    servers = list(servers)
    if found is None or not servers:
        return None
    named = [one for one in servers if found[1].startswith(tool_name(one.name, ""))]
    if not named:
        known = ", ".join(server.name for server in servers)
        raise UsageError(
            f"There is no prompt /{found[1][:80]}: it would be one of an MCP server, and the"
            f" session's servers are {known}."
        )
    asked = PromptInvocation(name=found[1], arguments=(found[2] or "").strip())
    if all(server.catalogue is not None for server in named):
        _, prompt = chosen(asked.name, named)
        filled(prompt, asked)
    return asked


def mentions(text: str, servers: Iterable[Server]) -> tuple[ResourceMention, ...]:
    """The resources of the servers that `text` names, each once."""
    names = {server.name for server in servers}
    found = [
        ResourceMention(server=one[1], uri=one[2].rstrip(_BEHIND))
        for one in _MENTION.finditer(text)
        if one[1] in names
    ]
    made = tuple(dict.fromkeys(found))
    if len(made) > MENTIONS_MAX:
        raise UsageError(
            f"The message names {len(made)} resources and the limit is {MENTIONS_MAX}; name fewer,"
            " or let the agent read them."
        )
    return made


def may_mention(text: str) -> bool:
    """Whether `text` looks as if it named a resource."""
    return _MENTION.search(text) is not None


def offered(servers: Iterable[Server]) -> Iterator[tuple[str, Server, Prompt]]:
    """The prompts that are known of the servers, by the names that a person types."""
    for server in servers:
        if server.catalogue is not None:
            for prompt in server.catalogue.prompts:
                yield tool_name(server.name, prompt.name), server, prompt


def chosen(name: str, servers: Iterable[Server]) -> tuple[Server, Prompt]:
    """The prompt of that name. Raises UsageError where there is none."""
    known = list(offered(servers))
    for one, server, prompt in known:
        if one == name:
            return server, prompt
    names = [f"/{one}" for one, _, _ in known]
    there = f"the prompts are {_listed(names)}" if names else "the session's servers have none"
    raise UsageError(f"There is no prompt /{name[:80]}; {there}.")


def filled(prompt: Prompt, asked: PromptInvocation) -> dict[str, str]:
    """What the prompt is told: `name=value`, and words for the arguments left, in their order.

    The last of these takes all the words that are left. Raises UsageError, with what is to be
    written, for what does not fit.
    """
    names = [one.name for one in prompt.arguments]
    given: dict[str, str] = {}
    words = []
    for word in _words(asked.arguments):
        named = _NAMED.fullmatch(word)
        if named is None:
            words.append(word)
        elif named[1] not in names:
            raise UsageError(
                f"Prompt /{asked.name} has no argument {named[1][:80]!r}; {_usage(prompt, asked)}."
            )
        elif named[1] in given:
            raise UsageError(f"Prompt /{asked.name} is given {named[1]!r} twice; give it once.")
        else:
            given[named[1]] = named[2]
    left = [name for name in names if name not in given]
    if words and not left:
        raise UsageError(
            f"Prompt /{asked.name} has nothing that {words[0][:80]!r} is for;"
            f" {_usage(prompt, asked)}."
        )
    for name in left[: len(words)]:
        last = name == left[-1]
        given[name] = " ".join(words) if last else words.pop(0)
    for one in prompt.arguments:
        if one.required and one.name not in given:
            raise UsageError(
                f"Prompt /{asked.name} needs {one.name!r}, which is missing;"
                f" {_usage(prompt, asked)}."
            )
    return given


def _usage(prompt: Prompt, asked: PromptInvocation) -> str:
    if not prompt.arguments:
        return f"write just /{asked.name}"
    return f"write /{asked.name} {' '.join(written(prompt))}"


def written(prompt: Prompt) -> tuple[str, ...]:
    """How its arguments are written; those in brackets may be left out."""
    return tuple(
        f"{one.name}=..." if one.required else f"[{one.name}=...]" for one in prompt.arguments
    )


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        # An apostrophe is no quotation mark.
        return text.split()


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
