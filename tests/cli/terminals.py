"""A command on a terminal of its own, and what stands on the screen of it."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from commands import Commands

COLUMNS, ROWS = 80, 24
_SEQUENCE = re.compile(r"\x1b(?:\[([?>]?[\d;]*)([A-Za-z])|[=>78])")


class Screen:
    """The lines that are left once the cursor movements of what was sent are obeyed."""

    def __init__(self) -> None:
        self._sent = ""

    def send(self, text: str) -> None:
        self._sent += text

    def lines(self) -> list[str]:
        shown: dict[tuple[int, int], str] = {}
        row = column = at = 0
        while at < len(self._sent):
            if found := _SEQUENCE.match(self._sent, at):
                at = found.end()
                count = int(found[1]) if (found[1] or "").isdigit() else 0
                match found[2]:
                    case "A":
                        row -= count or 1
                    case "B":
                        row += count or 1
                    case "C":
                        column += count or 1
                    case "D":
                        column -= count or 1
                    case "J":
                        below = [p for p in shown if p[0] > row or (p[0] == row and p[1] >= column)]
                        for place in below:
                            del shown[place]
                    case "K":
                        for place in [p for p in shown if p[0] == row and p[1] >= column]:
                            del shown[place]
                continue
            letter = self._sent[at]
            at += 1
            if letter == "\r":
                column = 0
            elif letter == "\n":
                row += 1
            elif letter == "\b":
                column -= 1
            elif letter.isprintable():
                if column == COLUMNS:
                    row, column = row + 1, 0
                shown[row, column] = letter
                column += 1
        last = max((place[0] for place in shown), default=-1)
        return [
            "".join(shown.get((number, place), " ") for place in range(COLUMNS)).rstrip()
            for number in range(last + 1)
        ]


class Terminal:
    """The person's end of a terminal."""

    def __init__(self, keyboard: int) -> None:
        self._keyboard = keyboard
        self._screen = Screen()
        self._changed = asyncio.Event()

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    async def shows(self, found: Callable[[list[str]], bool]) -> list[str]:
        """The lines of the screen once they are as `found` wants them."""
        try:
            async with asyncio.timeout(30):
                while not found(lines := self._screen.lines()):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError("The screen stays:\n" + "\n".join(lines)) from None
        return lines

    def hear(self) -> None:
        # EIO: the command has ended.
        with contextlib.suppress(OSError):
            self._screen.send(os.read(self._keyboard, 65536).decode(errors="replace"))
            self._changed.set()
            return
        asyncio.get_running_loop().remove_reader(self._keyboard)


@asynccontextmanager
async def on_a_terminal(commands: Commands, *arguments: str) -> AsyncIterator[Terminal]:
    """A command that has a terminal for stdin, stdout and stderr; it is killed afterwards."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everturn_workers.cli", *arguments),
        cwd=commands.folder,
        env={**commands.environment, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    terminal = Terminal(ours)
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, terminal.hear)
    try:
        yield terminal
    finally:
        loop.remove_reader(ours)
        if process.returncode is None:
            process.kill()
        await process.wait()
        os.close(ours)
