"""Workflow code is imported anew for each run, and is what the worker began with."""

import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from temporalio import workflow

from everturn_workers.isolation import sandbox
from everturn_workers.kept_code import KeptCode
from everturn_workflows.turn import Turn


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `kept_here` on disk, whose code is kept."""
    folder = tmp_path / "kept_here"
    folder.mkdir()
    (folder / "__init__.py").write_text("from kept_here.part import VERSION\n")
    (folder / "part.py").write_text("VERSION = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    kept = KeptCode("kept_here")
    kept.install()
    yield folder
    sys.meta_path.remove(kept)
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "kept_here"]:
        del sys.modules[name]


def test_an_upgrade_under_a_running_worker_changes_none_of_its_modules(package: Path) -> None:
    assert importlib.import_module("kept_here").VERSION == 1
    (package / "part.py").write_text("VERSION = 2_000\n")
    (package / "__init__.py").unlink()
    forget()
    again = importlib.import_module("kept_here")
    assert again.VERSION == 1
    assert again.part.__file__ == str(package / "part.py")


def test_a_module_that_is_not_there_is_missed_as_ever(package: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"kept_here\.none"):
        importlib.import_module("kept_here.none")


async def test_a_run_reads_no_file_of_its_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    definition = workflow._Definition.must_from_class(Turn)
    sandbox.prepare_workflow(definition)
    read: list[str] = []
    get_data = SourceFileLoader.get_data

    def told(loader: SourceFileLoader, path: str) -> bytes:
        read.append(path)
        return get_data(loader, path)

    monkeypatch.setattr(SourceFileLoader, "get_data", told)
    sandbox.prepare_workflow(definition)
    assert read == []
