"""What strangers may send: how long an id and a text may be, and what is text at all."""

import re

from everturn.errors import TooLarge, UsageError
from everturn.messages import Text, UserMessage

ID_CHARACTERS_MAX = 200

# About 65,000 tokens, half of a common model's window: a longer text would leave no room to
# work on it, whereas a file is read in pieces.
TEXT_BYTES_MAX = 256 * 1024

BODY_BYTES_MAX = 1024 * 1024
# Providers take images and documents of a few megabytes each, a third longer in base64.
MESSAGE_BODY_BYTES_MAX = 16 * 1024 * 1024

_ID = re.compile(rf"[A-Za-z0-9._:-]{{1,{ID_CHARACTERS_MAX}}}")


def checked_id(text: str, what: str) -> str:
    """`text` where it can be an id; UsageError names `what` otherwise."""
    # A path segment of dots would be folded away by clients and proxies.
    if _ID.fullmatch(text) is None or text in (".", ".."):
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise UsageError(
            f"The {what} {shown!a} is not possible; use 1 to {ID_CHARACTERS_MAX} letters,"
            " digits, dots, colons, underscores and hyphens of ASCII."
        )
    return text


def checked_text(text: str, what: str = "message") -> str:
    """`text` where a session takes it; UsageError or TooLarge says what to mend otherwise."""
    try:
        length = len(text.encode())
    except UnicodeEncodeError as error:
        raise UsageError(
            f"The {what} is not valid UTF-8 (character {error.start + 1}); convert it to UTF-8."
        ) from None
    if length > TEXT_BYTES_MAX:
        raise TooLarge(
            f"The {what} has {length:,} bytes of text and the limit is {TEXT_BYTES_MAX:,}; put it"
            " into a file of the working folder and name the file in the message."
        )
    if not text.strip():
        raise UsageError(f"The {what} is empty; write what is to be done.")
    return text


def text_from_bytes(raw: bytes, what: str = "message") -> str:
    """The text in `raw`; UsageError where it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The {what} is not valid UTF-8 (byte {error.start + 1}); convert it to UTF-8."
        ) from None


def checked_message(message: UserMessage) -> UserMessage:
    """`message` where a session takes it: some content, and its texts together within the limit."""
    texts = "\n".join(part.text for part in message.parts if isinstance(part, Text))
    if texts.strip() or not message.parts:
        checked_text(texts)
    return message
