"""The examples as programs: what each shows, and that it leaves nothing behind."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from everturn_workers import fetch

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 90


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where an example puts its temporary files: a short path, for sockets stand there too."""
    made = Path(tempfile.mkdtemp(prefix="examples-"))
    yield made
    shutil.rmtree(made)


def shown_by(example: str, folder: Path) -> str:
    if fetch.find() is None:
        pytest.fail("There is no Temporal server; run `make temporal`.")
    ran = subprocess.run(
        [sys.executable, f"examples/{example}.py"],
        cwd=EXAMPLES.parent,
        # A setting of the machine has no part in it.
        env={**os.environ, "TMPDIR": str(folder), "EVERTURN_PORT": "nonsense"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    assert list(folder.glob("everturn-*")) == []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            assert f"TMPDIR={folder}\0".encode() not in environment.read_bytes()
        except OSError:
            continue  # It ended meanwhile, or is another user's.
    return ran.stdout


def test_the_researcher_is_sent_by_its_schedule_and_writes_what_it_found(folder: Path) -> None:
    shown = shown_by("researcher", folder)

    assert "0 7 * * MON-FRI (Europe/Berlin). Next: 20" in shown
    assert "completed in 4 steps: The new pump moves more" in shown
    assert "the supplier says 270 W (sources/2026-04-supplier.md)" in shown
    assert "Asked again: The power:" in shown
    assert "The schedule remembers: sent, completed, $0.0" in shown


def test_letters_become_data_that_fits_the_schema_and_a_webhook_tells_so(folder: Path) -> None:
    shown = shown_by("invoices", folder)

    assert 'letter-2: done: {"from": "Sealwright Ltd", "total": 74.4, "currency": "GBP"' in shown
    told = [f"webhook: task.done of task letter-{n}" for n in (1, 2, 3)]
    assert [line for line in shown.splitlines() if line.startswith("webhook")] == told


def test_every_file_of_a_repository_is_reviewed_and_one_report_made_of_it(folder: Path) -> None:
    shown = shown_by("reviewers", folder)

    assert shown.startswith(
        "4 files are reviewed, 3 at once.\nshop/basket.py: completed in 2 steps"
    )
    assert "shop/names.py: completed in 2 steps: fine\n" in shown
    assert "All together:\n1. shop/orders.py:5: whoever names an order" in shown
    assert "4 of 4 files, $0.0" in shown
    assert "Session review:1, asked again: Divide percent_off by 100" in shown


@pytest.mark.parametrize("example", ["researcher", "invoices", "reviewers"])
def test_each_example_has_a_page_that_names_its_program(example: str) -> None:
    page = (EXAMPLES / example / "README.md").read_text()
    assert f"python examples/{example}.py" in page
    assert len(page.splitlines()) <= 60
