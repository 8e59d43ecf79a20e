"""What each tool of the table of kills does: it tells how far it is, and may wait on the way.

A file of its own, for it is run by a thread, by the event loop and by a child process alike.
`act` yields while it waits.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path


def note(folder: Path, call: tuple[str, str, str], what: str) -> None:
    tool, stop, key = call
    noted = {"tool": tool, "stop": stop, "key": key, "what": what, "pid": os.getpid()}
    line = json.dumps(noted) + "\n"
    log = os.open(folder / "acts.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, line.encode())
    os.close(log)


def act(folder: Path, tool: str, effect: str, key: str, stop: str) -> Iterator[None]:
    """Begin, do the first half of the effect, then the second; waits at `stop`."""

    call = (tool, stop, key)

    def wait(place: str) -> Iterator[None]:
        if stop == place:
            note(folder, call, "waits")
            while not (folder / "gates" / "go").exists():
                yield

    note(folder, call, "began")
    yield from wait("before the effect")
    note(folder, call, "half")
    yield from wait("midst")
    if effect == "keyed":
        # The other side knows the keys that it has seen.
        try:
            os.close(os.open(folder / "gates" / key, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            note(folder, call, "recognized")
            return
    note(folder, call, "effect")
    yield from wait("after the effect")


def main() -> None:
    folder, tool, effect, key, stop = sys.argv[1:]
    for _ in act(Path(folder), tool, effect, key, stop):
        time.sleep(0.01)


if __name__ == "__main__":
    main()
