"""What a server says, in pieces: what it writes itself, what it shows, and images."""

from dataclasses import dataclass

from everturn.context.untrusted import as_data, neutral
from everturn.messages import Image
from everturn_activities.capped import capped

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
IMAGE_CHARACTERS_MAX = 5 << 20
"""In base64; providers refuse larger ones."""


@dataclass(frozen=True)
class Piece:
    """A text; one `of` a resource is that resource's, and not the server's own word. `image` is
    what the text stands for, where models can see it."""

    text: str
    of: str | None = None
    image: Image | None = None


def binary(what: str, media_type: str, data: str) -> Piece:
    """`data`, in base64, as an image where models can see it; else by what it is."""
    text = f"[{what}, {media_type}, {len(data) * 3 // 4:,} bytes, not shown]"
    if media_type not in IMAGE_TYPES or len(data) > IMAGE_CHARACTERS_MAX:
        return Piece(text)
    return Piece(text, image=Image(media_type=media_type, data=data))


def asked_for(pieces: list[Piece], server: str, boundary: str) -> tuple[str, tuple[Image, ...]]:
    """The pieces as a person's own request: they asked for what the server writes, and not for
    what stands in the resources that it shows, which is data."""
    texts, images = [], []
    for piece in pieces:
        if piece.image is not None:
            images.append(piece.image)
        elif piece.of is not None:
            what = f"server {server}, of which that is resource {neutral(piece.of)},"
            texts.append(as_data(capped(piece.text), what, boundary))
        else:
            texts.append(capped(neutral(piece.text)))
    return "\n\n".join(texts), tuple(images)


def as_text(pieces: list[Piece]) -> str:
    """The pieces for who reads text only."""
    return "\n".join(
        piece.text if piece.of is None else f"[resource {piece.of}]\n{piece.text}"
        for piece in pieces
    )
