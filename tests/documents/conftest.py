"""A workspace with documents."""

from pathlib import Path

import pytest
from asking import Asker

from everturn_activities.sources.documents import DocumentSources


@pytest.fixture
def ask(tmp_path: Path) -> Asker:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return Asker(folder)


@pytest.fixture
def sources(tmp_path: Path) -> DocumentSources:
    return DocumentSources(tmp_path / "home")
