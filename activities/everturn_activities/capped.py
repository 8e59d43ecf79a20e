"""Long output cut to its head and its tail."""

from collections import deque

from everturn.messages import without_lone_surrogates

RESULT_BYTES_MAX = 64 * 1024
CUT_HERE = "bytes cut here"
WHOLE_BYTES_MAX = 4 * 1024 * 1024
"""Of what is kept of a result that is too long to be shown."""


READ_MORE = "read_more"
"""The tool that shows the rest."""


def with_way_on(text: str, place: str) -> str:
    """A cut text that says how to read on in what is kept whole at `place`."""
    return text.replace(CUT_HERE, f'{CUT_HERE}; {READ_MORE} "{place}" shows them', 1)


def capped(text: str, bytes_max: int = RESULT_BYTES_MAX) -> str:
    """`text` as valid UTF-8, cut in its middle to about `bytes_max` with a note of the cut."""
    if len(text) <= bytes_max and text.isascii():
        return text
    text = without_lone_surrogates(text)
    if len(text) <= bytes_max // 4:
        return text
    output = CappedOutput(bytes_max)
    output.feed(text.encode())
    return output.text()


class CappedOutput:
    """Collects output as it comes, and never holds more than about `bytes_max` of it."""

    def __init__(self, bytes_max: int = RESULT_BYTES_MAX) -> None:
        self._head_max = bytes_max // 2
        self._tail_max = bytes_max - self._head_max
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_length = 0
        self.length = 0

    def feed(self, data: bytes) -> None:
        self.length += len(data)
        missing = self._head_max - len(self._head)
        self._head += data[:missing]
        rest = data[missing:][-self._tail_max :]
        if rest:
            self._tail.append(rest)
            self._tail_length += len(rest)
            while self._tail_length - len(self._tail[0]) >= self._tail_max:
                self._tail_length -= len(self._tail.popleft())

    def text(self) -> str:
        tail = b"".join(self._tail)[-self._tail_max :]
        cut = self.length - len(self._head) - len(tail)
        if not cut:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        # A character that the cut goes through is dropped on both sides of it.
        head = bytes(self._head).decode("utf-8", "ignore")
        note = f"\n[... {cut} of {self.length} {CUT_HERE} ...]\n"
        return head + note + tail.decode("utf-8", "ignore")
