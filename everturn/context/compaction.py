"""Compaction: what is asked of the model that summarises, and what of its answer counts."""

from collections.abc import Sequence
from dataclasses import dataclass

import everturn.context.window as windows
from everturn.agents import AgentSpec
from everturn.context.compose import Context, side_request
from everturn.context.cuts import Extent
from everturn.context.window import Frame
from everturn.messages import (
    AnyUserPart,
    AssistantMessage,
    Document,
    Image,
    PromptInvocation,
    ResourceMention,
    SkillInvocation,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)

SUMMARY_TOKENS_MAX = 20_000
CUT_SHARE_MIN = 0.05
"""A cut that frees less of the window than this is not worth a model call."""

SHORTEST = 64
"""Pieces of a transcript are not shortened below so many characters."""

CHARACTERS_A_TOKEN = 3
"""Careful: most texts have four."""

HEADINGS = (
    "Primary Request and Intent",
    "Key Technical Concepts",
    "Files and Code Sections",
    "Errors and fixes",
    "Pending Tasks",
    "Current Work",
)

SYSTEM = "You summarise the conversations of an agent, so that it can go on without reading them."

NO_TOOLS = (
    "CRITICAL: answer with text only. Call no tool: not Read, Bash, Grep, Glob, Edit, Write or"
    " any other. All the context that you need is above. A tool call will be REJECTED, and this"
    " is your only turn: it would be wasted."
)

PROMPT = (
    f"{NO_TOOLS}\n\n"
    "Summarise the conversation above for the agent that continues it. It will see your summary"
    " and the newest messages, and nothing else of what is above. Write these six sections, in"
    " this order, each under its heading:\n\n"
    f"## {HEADINGS[0]}\nAll that the user asked for, in detail; changes of mind, and limits that"
    " the user set, in the user's own words.\n\n"
    f"## {HEADINGS[1]}\nTechnologies, conventions and decisions that matter to the work.\n\n"
    f"## {HEADINGS[2]}\nFiles that were read, changed or created: the path, why it matters, and"
    " the parts of its text that will be needed.\n\n"
    f"## {HEADINGS[3]}\nWhat went wrong, how it was mended, and what the user said about it.\n\n"
    f"## {HEADINGS[4]}\nWhat was asked for and is not done yet.\n\n"
    f"## {HEADINGS[5]}\nWhat was being done at the end of what is above, precisely enough to go"
    " on: names, numbers, paths and ids as they stand there."
)

AnyMessage = UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True)
class Counted:
    """A message of what is sent: the last position it stands for, who says it, its tokens."""

    position: int
    role: str
    tokens: int


@dataclass(frozen=True)
class Plan:
    """Which messages a summary would replace: all up to position `last`.

    `tokens` is what they take now, under the cuts at number `cuts`, as far as they are sent
    (`first`, `since`). After `failures` that
    came before, less of them is shown to the model each time.
    """

    last: int
    tokens: int
    cuts: int
    failures: int = 0
    first: int = 1
    since: int = 0

    @property
    def extent(self) -> Extent:
        """What it is a summary of."""
        return Extent(self.last, self.cuts, self.first, self.since)


def cut_point(messages: Sequence[Counted], keep_last: int, tokens_max: int) -> int:
    """How many of the first `messages` a summary may replace; 0 for none.

    The last `keep_last` stay, or fewer where those take more than `tokens_max`; no tool
    result stays without the call that it answers.
    """
    cut = max(0, len(messages) - keep_last)
    kept = sum(message.tokens for message in messages[cut:])
    while kept > tokens_max and cut < len(messages) - 1:
        kept -= messages[cut].tokens
        cut += 1
    if cut > len(messages) - keep_last:
        while cut < len(messages) - 1 and messages[cut].role == "tool":
            cut += 1
    while cut > 0 and messages[cut].role == "tool":
        cut -= 1
    return cut


def kept_tokens_max(frame: Frame, conversation: int, forced: bool) -> int:
    """What the messages that stay may take, so that the next compaction is not due at once.

    `forced`: the provider found the request too long, so that the counts must be wrong.
    """
    room = max(0, int(frame.compaction.at * frame.window) - frame.fixed) // 2
    return min(room, conversation // 2) if forced else room


def summary_tokens_max(window: int) -> int:
    return min(SUMMARY_TOKENS_MAX, max(64, window // 8))


def summary_request(
    spec: AgentSpec, window: int, messages: Sequence[AnyMessage], model: str
) -> Context:
    """The request for a summary of `messages`, which is text from end to end: a provider may
    refuse tool calls where it is given no tools, and thoughts of another model."""
    tokens_max = summary_tokens_max(window)
    room = (
        window - windows.reserved(window, tokens_max) - len(SYSTEM + PROMPT) // CHARACTERS_A_TOKEN
    )
    told = transcript(messages, max(0, int(0.9 * room)) * CHARACTERS_A_TOKEN)
    text = f"<conversation>\n{told}\n</conversation>\n\n{PROMPT}"
    return side_request(spec.agent, model, SYSTEM, text, tokens_max)


def transcript(messages: Sequence[AnyMessage], characters_max: int) -> str:
    """`messages` as text of about `characters_max` at most: long pieces lose their middle,
    and where that is not enough the whole does."""
    pieces = [piece for message in messages for piece in _told(message)]
    heads = sum(len(head) + 3 for head, _ in pieces)
    longest = max((len(text) for _, text in pieces), default=0)
    while longest > SHORTEST and heads + _length(pieces, longest) > characters_max:
        longest = longest * 3 // 4
    told = [f"{head}\n{_shortened(text, longest)}" for head, text in pieces]
    while len(told) > 2 and sum(len(text) + 2 for text in told) > characters_max:
        del told[len(told) // 2]
    return "\n\n".join(told)


def _length(pieces: Sequence[tuple[str, str]], longest: int) -> int:
    return sum(min(len(text), longest) for _, text in pieces)


def usable(message: AssistantMessage) -> str | None:
    """The summary, or None where the answer is a tool call or says nothing."""
    text = message.text.strip()
    return None if message.tool_calls or not text else text


def bounded(text: str, characters_max: int) -> str:
    """`text` without its end where it is too long."""
    return text if len(text) <= characters_max else f"{text[:characters_max]}\n\n[truncated]"


def _told(message: AnyMessage) -> list[tuple[str, str]]:
    match message:
        case UserMessage():
            return [("[user]", "\n".join(_part(part) for part in message.parts))]
        case AssistantMessage():
            told = [("[assistant]", message.text)] if message.text else []
            return told + [
                (f"[assistant calls {call.name}]", _arguments(call)) for call in message.tool_calls
            ]
        case ToolMessage():
            return [
                (f"[{result.name} {'failed' if result.failed else 'answers'}]", result.text)
                for result in message.results
            ]


def _part(part: AnyUserPart) -> str:
    match part:
        case Text() | SkillInvocation():
            return part.text
        case PromptInvocation() | ResourceMention():
            return part.sent
        case Image():
            return "(an image)"
        case Document():
            return f"(a document: {part.name})"


def _arguments(call: ToolCall) -> str:
    return call.malformed or ", ".join(
        f"{name}={value!r}" for name, value in call.arguments.items()
    )


def _shortened(text: str, characters_max: int) -> str:
    if len(text) <= characters_max:
        return text
    half = characters_max // 2
    return f"{text[:half]} [...] {text[len(text) - half :]}"
