"""Turns whose agents have MCP servers, on the fixtures of the turn's tests."""

import runpy
import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
for folder in (".", "turn", "features", "gateways"):
    sys.path.insert(0, str(TESTS / folder))

_turn = runpy.run_path(str(TESTS / "turn" / "conftest.py"))
server_address = _turn["server_address"]
workspace = _turn["workspace"]
made = _turn["made"]
