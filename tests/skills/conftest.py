"""Folders for skills."""

from pathlib import Path

import pytest
from shelves import Folders


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    return Folders(workspace, home)
