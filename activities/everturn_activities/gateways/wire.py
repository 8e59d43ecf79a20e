"""Messages and tools in the Chat Completions format, which every gateway speaks."""

import re
from typing import Any

import orjson

from everturn.agents import NativeTool, ToolSpec
from everturn.messages import (
    AnyUserPart,
    AssistantMessage,
    Document,
    Image,
    PromptInvocation,
    ResourceMention,
    Served,
    SkillInvocation,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)

RESULTS_HEADING = "Results of your tool calls, one JSON object a line:\n"
CALLS_HEADING = "Tool calls, one JSON object a line:\n"
EMPTY_REPLY = "(no text)"

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where endpoints put a thought's plain text; `Thinking.id` remembers which of them it was."""

REASONING_DETAILS = "reasoning_details"
"""`Thinking.id` of an item of OpenRouter's list; `encrypted` is its JSON without the text."""

EXTRA_CONTENT = "extra_content:"
"""`Thinking.id` of what Gemini attaches to a tool call: this, then the call's id."""

NAME_CHARACTERS_MAX = 64
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARACTERS_MAX}}}")
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")

GOOGLES = ("gemini", "vertex_ai", "vertex_ai_beta")
"""The providers of Gemini, which call a tool by a key and not by a type."""

GOOGLES_SEARCHES = ("googleSearch", "urlContext")
_OLD_GEMINI = re.compile(r"^(gemini|vertex_ai|vertex_ai_beta)/.*gemini-[12]\b")

_ANTHROPICS = {
    "web_search": {"type": "web_search_20250305", "name": "web_search"},
    "web_fetch": {"type": "web_fetch_20250910", "name": "web_fetch"},
    "code_execution": {"type": "code_execution_20250825", "name": "code_execution"},
}

AnyMessage = UserMessage | AssistantMessage | ToolMessage
Wire = dict[str, Any]


def wire_messages(message: AnyMessage, tool_role: bool) -> list[Wire]:
    """`message` as the wire has it: several where it holds the results of several calls.

    Without `tool_role`, calls and results go as the text of an assistant and a user
    message: an endpoint that does not know the role refuses calls that no message of
    that role answers.
    """
    match message:
        case UserMessage():
            return [{"role": "user", "content": _user_content(message)}]
        case AssistantMessage():
            return [_assistant(message) if tool_role else _assistant_as_text(message)]
        case ToolMessage() if tool_role:
            return [
                {"role": "tool", "tool_call_id": result.call_id, "content": result.text}
                for result in message.results
            ]
        case ToolMessage():
            lines = "\n".join(_result_line(result) for result in message.results)
            return [{"role": "user", "content": RESULTS_HEADING + lines}]


def wire_tool(tool: ToolSpec) -> Wire:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }


def wire_native(tool: NativeTool, provider: str) -> Wire:
    """A tool that the provider runs itself, as it wants to be told of it; a table as it stands."""
    if isinstance(tool, dict):
        return tool
    if provider == "anthropic":
        return _ANTHROPICS.get(tool, {"type": tool, "name": tool.rpartition("_")[0] or tool})
    if provider in GOOGLES:
        return {tool: {}}
    return {"type": tool}


def mixes_tools(model: str) -> bool:
    """Whether the model takes searches of its provider beside tools of ours. A Gemini before 3
    refuses that, and LiteLLM leaves them out."""
    return _OLD_GEMINI.search(model) is None


def _user_content(message: UserMessage) -> str | list[Wire]:
    if len(message.parts) == 1:
        (only,) = message.parts
        if isinstance(only, Text | SkillInvocation):
            return only.text
        if isinstance(only, Served):
            return only.sent
    return [_user_part(part) for part in message.parts]


def _user_part(part: AnyUserPart) -> Wire:
    match part:
        case Text() | SkillInvocation():
            return {"type": "text", "text": part.text}
        case PromptInvocation() | ResourceMention():
            return {"type": "text", "text": part.sent}
        case Image():
            url = f"data:{part.media_type};base64,{part.data}"
            return {"type": "image_url", "image_url": {"url": url}}
        case Document():
            url = f"data:{part.media_type};base64,{part.data}"
            return {"type": "file", "file": {"filename": part.name, "file_data": url}}


def _assistant(message: AssistantMessage) -> Wire:
    calls = message.tool_calls
    text = message.text
    if not text or text.isspace():
        # Some providers refuse a message of white space only, which a cut reply may be.
        text = "" if calls else EMPTY_REPLY
    wire: Wire = {"role": "assistant", "content": text or None}
    if calls:
        wire["tool_calls"] = [_call(call) for call in calls]
    _add_thinking(wire, message)
    return wire


def _call(call: ToolCall) -> Wire:
    # A malformed call goes back as `{}`: endpoints parse the arguments they are sent, and
    # the error result beside it tells the model what was wrong.
    arguments = orjson.dumps(call.arguments).decode()
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": _possible(call.name), "arguments": arguments},
    }


def _possible(name: str) -> str:
    """`name` as providers take one: they refuse a request that holds any other, though it was
    their own model that wrote it."""
    if _NAME.fullmatch(name):
        return name
    return _NO_NAME.sub("_", name)[:NAME_CHARACTERS_MAX] or "unnamed"


def _assistant_as_text(message: AssistantMessage) -> Wire:
    pieces = [message.text] if message.text else []
    if message.tool_calls:
        lines = [
            orjson.dumps({"call_id": call.id, "name": call.name, "arguments": call.arguments})
            for call in message.tool_calls
        ]
        pieces.append(CALLS_HEADING + b"\n".join(lines).decode())
    return {"role": "assistant", "content": "\n\n".join(pieces) or EMPTY_REPLY}


def _result_line(result: ToolResult) -> str:
    line: Wire = {"call_id": result.call_id, "name": result.name, "text": result.text}
    if result.failed:
        line["failed"] = True
    return orjson.dumps(line).decode()


def _add_thinking(wire: Wire, message: AssistantMessage) -> None:
    """Send thoughts back in the fields that they came in.

    Plain text goes back only beside tool calls: there endpoints ask for it, elsewhere
    they drop or refuse it. Thoughts of another protocol, such as Anthropic's signed
    blocks, stay out.
    """
    for part in message.parts:
        if not isinstance(part, Thinking) or part.id is None:
            continue
        if part.id in REASONING_FIELDS and message.tool_calls:
            wire[part.id] = wire.get(part.id, "") + part.text
        elif part.id == REASONING_DETAILS and part.encrypted:
            item = orjson.loads(part.encrypted)
            if part.text:
                item["summary" if item.get("type") == "reasoning.summary" else "text"] = part.text
            wire.setdefault(REASONING_DETAILS, []).append(item)
        elif part.id.startswith(EXTRA_CONTENT) and part.encrypted:
            for call in wire.get("tool_calls", ()):
                if call["id"] == part.id.removeprefix(EXTRA_CONTENT):
                    call["extra_content"] = orjson.loads(part.encrypted)
