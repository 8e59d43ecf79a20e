"""Messages and their parts, as stored and as sent to a model."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class Frozen(BaseModel):
    """Data that never changes and refuses fields that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Text(Frozen):
    type: Literal["text"] = "text"
    text: str


class Thinking(Frozen):
    """What a model thought aloud.

    `signature` and `encrypted` are opaque proofs of the provider; they go back
    unchanged with the tool results, or the provider refuses the request. `by` is the model
    that thought it.
    """

    type: Literal["thinking"] = "thinking"
    text: str = ""
    signature: str | None = None
    encrypted: str | None = None
    id: str | None = None
    by: str | None = None


class Image(Frozen):
    """An image: `data` in base64."""

    type: Literal["image"] = "image"
    media_type: str
    data: str


class Document(Frozen):
    """A document such as a PDF: `data` in base64."""

    type: Literal["document"] = "document"
    media_type: str
    data: str
    name: str = "document"


class SkillInvocation(Frozen):
    """A skill that a person asked for by `/name arguments`: `text` is what it came to when the
    message was accepted, and what the model is sent. `path` is where it was read."""

    type: Literal["skill"] = "skill"
    name: str
    path: str
    arguments: str = ""
    text: str

    @property
    def said(self) -> str:
        """What the person wrote."""
        return f"/{self.name} {self.arguments}".strip()


class PromptInvocation(Frozen):
    """A prompt of an MCP server that a person asked for by `/mcp_<server>_<prompt> arguments`.
    `text` is what the server made of it, from when a worker has asked that, once."""

    type: Literal["prompt"] = "prompt"
    name: str
    arguments: str = ""
    text: str | None = None

    @property
    def said(self) -> str:
        """What the person wrote."""
        return f"/{self.name} {self.arguments}".strip()

    @property
    def sent(self) -> str:
        """What a model is sent."""
        return self.said if self.text is None else self.text


class ResourceMention(Frozen):
    """A resource of an MCP server that a person named as `@<server>:<uri>` in the text before it.
    `text` is what it held, from when a worker has read it, once."""

    type: Literal["resource"] = "resource"
    server: str
    uri: str
    text: str | None = None

    @property
    def sent(self) -> str:
        """What a model is sent."""
        return f"(resource {self.uri} was not read)" if self.text is None else self.text


class ToolCall(Frozen):
    """A call that a model asks for.

    `malformed` holds the model's own text where it was not a JSON object; then
    `arguments` is empty and the call is answered with an error result.
    """

    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    malformed: str | None = None


class ToolResult(Frozen):
    """`recorded`: nothing was run, an earlier run of the same call gave this result."""

    call_id: str
    name: str
    text: str
    failed: bool = False
    recorded: bool = False


Served = PromptInvocation | ResourceMention
"""What a person asked of an MCP server, to be rendered by a worker."""

AnyUserPart = Text | SkillInvocation | PromptInvocation | ResourceMention | Image | Document
UserPart = Annotated[AnyUserPart, Field(discriminator="type")]
AssistantPart = Annotated[Text | Thinking | ToolCall, Field(discriminator="type")]


class UserMessage(Frozen):
    role: Literal["user"] = "user"
    parts: tuple[UserPart, ...]

    @property
    def said(self) -> str:
        """The text of it as its sender wrote it."""
        return "".join(
            part.text if isinstance(part, Text) else part.said
            for part in self.parts
            if isinstance(part, Text | SkillInvocation | PromptInvocation)
        )

    @property
    def is_due(self) -> bool:
        """Whether any of it is still to be rendered."""
        return any(isinstance(part, Served) and part.text is None for part in self.parts)


class AssistantMessage(Frozen):
    role: Literal["assistant"] = "assistant"
    parts: tuple[AssistantPart, ...]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


class ToolMessage(Frozen):
    """The results of one step's tools, in call order."""

    role: Literal["tool"] = "tool"
    results: tuple[ToolResult, ...]


Message = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]

_message: TypeAdapter[UserMessage | AssistantMessage | ToolMessage] = TypeAdapter(Message)


def message_from_json(text: str | bytes) -> UserMessage | AssistantMessage | ToolMessage:
    return _message.validate_json(text)


def user_text(text: str) -> UserMessage:
    return UserMessage(parts=(Text(text=text),))


def without_lone_surrogates(text: str) -> str:
    """`text` as valid UTF-8: models do emit halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode("utf-8")
