"""A working folder with a secret beside it, and calls of the built-in tools in it."""

import runpy
from pathlib import Path

import pytest
from local_servers import SECRET

_tools = runpy.run_path(str(Path(__file__).parent.parent / "tools" / "conftest.py"))
folder = _tools["folder"]
context = _tools["context"]
call = _tools["call"]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file beside the working folder that no tool may read or change."""
    path = tmp_path / "secret.txt"
    path.write_text(SECRET)
    return path
