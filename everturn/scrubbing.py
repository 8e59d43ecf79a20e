"""Values that must show nowhere, and texts without them."""

import base64
import html
import json
import threading
from collections.abc import Iterator, Mapping
from urllib.parse import SplitResult, quote, quote_plus, unquote, unquote_plus

SECRET_CHARACTERS_MIN = 8
"""A shorter value would be found in innocent texts, so it is not looked for."""

_LINE_CHARACTERS_MIN = 16
"""From this length on a line of a secret of several lines is looked for by itself."""

_LEFT_IN_URLS = ("", "/", "!'()*", "/?:@!$'()*,", "/?:@!$'()*,;&=+#")
"""By urllib for a part and for a path, by browsers for a part, by aiohttp in a query, and by
browsers in a whole URL."""

_SECRET_PARTS = ("pass", "secret", "key", "token", "credential")

_Span = tuple[int, int, str]


def is_secret_name(name: str) -> bool:
    """Whether a name, as of a URL's parameter, says that its value is a secret."""
    return any(part in name.lower() for part in _SECRET_PARTS)


def secrets_of(url: SplitResult) -> frozenset[str]:
    """What of a URL must show nowhere: its password and the parameters whose names say so, as they
    stand and decoded, for a `+` may be meant as one."""
    raw = [url.password or ""]
    for parameter in url.query.split("&"):
        name, _, value = parameter.partition("=")
        if is_secret_name(unquote_plus(name)):
            raw.append(value)
    ways = (str, unquote, unquote_plus)
    return frozenset(text for value in raw for way in ways if (text := way(value)))


class Scrubber:
    """Knows values, and takes them out of texts: as they are, and in their usual encodings.

    Found are base64 (at any place in a longer text), hex, URL, JSON and HTML, also where lines
    are wrapped. What else a text does to a value is not seen through. It may be taught and
    asked from any thread.
    """

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}
        self._forms: tuple[tuple[str, str], ...] = ()
        self._learning = threading.Lock()

    def __repr__(self) -> str:
        return f"Scrubber of {len(self._marks)} values"

    def __len__(self) -> int:
        """How many values it knows."""
        return len(self._marks)

    def learn(self, name: str, value: str) -> None:
        """From now on `value` is shown as `[secret NAME]`, unless it is too short."""
        value = value.strip()
        if len(value) < SECRET_CHARACTERS_MIN or value in self._marks:
            return
        with self._learning:
            self._marks.setdefault(value, f"[secret {name}]")
            forms = {form: mark for one, mark in self._marks.items() for form in _forms(one)}
            # Replaced and not changed: another thread may be reading them.
            self._forms = tuple(sorted(forms.items(), key=lambda form: -len(form[0])))

    def scrubbed(self, text: str) -> str:
        """`text` with a mark in place of each value."""
        if not self._forms:
            return text
        flat = _flat(text)
        spans = self._spans(flat)
        return _marked(text, _places(text, flat), spans) if spans else text

    def stream(self) -> "ScrubbedStream":
        """The same of a text that comes in pieces."""
        return ScrubbedStream(self)

    def _spans(self, flat: str) -> list[_Span]:
        """Where values stand, in order; what overlaps is one."""
        found: list[_Span] = []
        for form, mark in self._forms:
            at = flat.find(form)
            while at >= 0:
                found.append((at, at + len(form), mark))
                at = flat.find(form, at + 1)
        merged: list[_Span] = []
        for start, end, mark in sorted(found, key=lambda span: (span[0], -span[1])):
            if merged and start < merged[-1][1]:
                before = merged.pop()
                merged.append((before[0], max(before[1], end), before[2]))
            else:
                merged.append((start, end, mark))
        return merged

    def _open(self, flat: str) -> int:
        """Where the longest end of `flat` begins that may be the beginning of a value."""
        longest = len(self._forms[0][0]) - 1
        tail = flat[-longest:]
        first = len(tail)
        for form, _ in self._forms:
            at = tail.find(form[0], max(len(tail) - len(form) + 1, 0), first)
            while at >= 0 and not form.startswith(tail[at:]):
                at = tail.find(form[0], at + 1, first)
            first = at if at >= 0 else first
        return len(flat) - len(tail) + first


class ScrubbedStream:
    """A text in pieces: what may be the beginning of a value is held back until more is known."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._held = ""

    def feed(self, piece: str) -> str:
        """What may be shown by now."""
        if not self._scrubber:
            return piece
        text = self._held + piece
        flat = _flat(text)
        spans = self._scrubber._spans(flat)
        until = self._scrubber._open(flat)
        if not spans and until == len(flat):
            self._held = ""
            return text
        places = _places(text, flat)
        for start, end, _ in spans:
            if start < until < end:
                until = start
        cut = places[until]
        self._held = text[cut:]
        shown = [span for span in spans if span[1] <= until]
        return _marked(text[:cut], places, shown) if shown else text[:cut]

    def rest(self) -> str:
        """What was held back, now that nothing follows."""
        held, self._held = self._held, ""
        return self._scrubber.scrubbed(held)


def _flat(text: str) -> str:
    """`text` without the ends of its lines: encoders wrap what they write."""
    return text.replace("\n", "").replace("\r", "")


def _places(text: str, flat: str) -> "list[int] | range":
    """Where each character of `flat` stands in `text`, and where `text` ends."""
    if len(text) == len(flat):
        return range(len(text) + 1)
    return [*(at for at, character in enumerate(text) if character not in "\r\n"), len(text)]


def _marked(text: str, places: "list[int] | range", spans: list[_Span]) -> str:
    pieces, at = [], 0
    for start, end, mark in spans:
        pieces += [text[at : places[start]], mark]
        at = places[end - 1] + 1
    return "".join((*pieces, text[at:]))


def _forms(value: str) -> Iterator[str]:
    """`value` as it may stand in a text that has no line ends."""
    values = [value]
    if "\n" in value:
        # Armour such as -----BEGIN is in every key, and no secret.
        lines = (line.strip() for line in value.splitlines())
        values += [
            line
            for line in lines
            if len(line) >= _LINE_CHARACTERS_MIN and not line.startswith("-----")
        ]
    for one in values:
        content = one.encode("utf-8", "replace")
        yield _flat(one)
        for escaped in (json.dumps(one)[1:-1], json.dumps(one, ensure_ascii=False)[1:-1]):
            yield escaped
            # As encoders write it that have web pages in mind.
            yield escaped.replace("/", "\\/")
            yield _with_escapes(escaped, {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
        yield html.escape(one, quote=False)
        for quote_mark in ("&#x27;", "&#39;", "&apos;"):
            yield html.escape(one).replace("&#x27;", quote_mark)
        for quoted in _in_urls(one):
            yield quoted
            yield _lower_escapes(quoted)
        yield content.hex()
        yield content.hex().upper()
        for offset in range(3):
            encoded = _inner_base64(content, offset)
            yield encoded
            yield encoded.translate({ord("+"): "-", ord("/"): "_"})


def _in_urls(value: str) -> Iterator[str]:
    """`value` as encoders put it into a URL or a form: they differ in what they leave."""
    for left in _LEFT_IN_URLS:
        yield quote(value, safe=left)
        yield quote_plus(value, safe=left)
    yield quote_plus(value, safe="*").replace("~", "%7E")


def _with_escapes(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in text)


def _lower_escapes(quoted: str) -> str:
    head, *rest = quoted.split("%")
    return "%".join((head, *(piece[:2].lower() + piece[2:] for piece in rest)))


def _inner_base64(content: bytes, offset: int) -> str:
    """The base64 of `content` behind `offset` bytes more (of three), without those characters
    that what stands around it decides too."""
    encoded = base64.b64encode(bytes(offset) + content).decode()
    return encoded[-(-offset * 8 // 6) : (offset + len(content)) * 8 // 6]
