"""Small servers of a test's own, each with a folder that says what it offers."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_servers import table

HERE = Path(__file__).parent


def tool(name: str, description: str = "Does something.", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": {}, **more},
    }


@dataclass(frozen=True)
class Small:
    folder: Path

    @classmethod
    def made(cls, folder: Path, *tools: dict[str, Any] | str) -> "Small":
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "version").write_text("1")
        small = cls(folder)
        small.offers(*tools)
        return small

    def offers(self, *tools: dict[str, Any] | str) -> None:
        given = [tool(one) if isinstance(one, str) else one for one in tools]
        (self.folder / "tools.json").write_text(json.dumps(given))

    def holds(self, **texts: str | dict[str, str]) -> None:
        """Resources `note:///NAME` that it has, each a text or as MCP tells of it."""
        told = {
            f"note:///{name}": {"text": one} if isinstance(one, str) else one
            for name, one in texts.items()
        }
        (self.folder / "resources.json").write_text(json.dumps(told))

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-I", "-S", str(HERE / "small_server.py"), str(self.folder)]

    def table(self, name: str, **more: object) -> str:
        return table(name, self.command, **more)

    @property
    def received(self) -> list[dict[str, Any]]:
        log = self.folder / "log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def asked(self, method: str) -> list[dict[str, Any]]:
        return [m.get("params") or {} for m in self.received if m.get("method") == method]
