"""No race of renames leads out of a working folder."""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from everturn import ToolFailed
from everturn_activities import paths
from everturn_activities.paths import WorkingFolder

RACE_SECONDS = 1.0

# Exchanges a folder with a link that leads outside, for as long as it lives.
ATTACKER = """
import ctypes, sys
folder, link = (path.encode() for path in sys.argv[1:])
rename = ctypes.CDLL(None).renameat2
print("ready", flush=True)
while True:
    rename(-100, folder, -100, link, 2)
"""


@pytest.fixture
def contested(folder: Path):
    """A folder whose `sub` is at every moment exchanged with a link to the outside."""
    if not hasattr(ctypes.CDLL(None), "renameat2"):
        pytest.skip("there is no renameat2 here")
    outside = folder.parent / "outside"
    for place, text in ((folder / "sub", "inside"), (outside, "outside")):
        place.mkdir()
        (place / "file.txt").write_text(text)
    (folder / "link").symlink_to(outside)
    arguments = [sys.executable, "-c", ATTACKER, str(folder / "sub"), str(folder / "link")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as attacker:
        assert attacker.stdout is not None
        attacker.stdout.readline()
        yield folder
        attacker.kill()


@pytest.mark.parametrize("walking", [False, True], ids=["openat2", "walking"])
def test_a_link_that_is_exchanged_while_a_path_is_resolved_never_leads_outside(
    contested, monkeypatch, walking
):
    if walking:
        monkeypatch.setattr(paths, "has_openat2", lambda: False)
    elif not paths.has_openat2():
        pytest.skip("this kernel has no openat2")
    working_folder = WorkingFolder(contested)
    outside = contested.parent / "outside"
    inside = refused = 0

    end = time.monotonic() + RACE_SECONDS
    while time.monotonic() < end:
        try:
            with working_folder.reading("sub/file.txt") as descriptor:
                assert os.read(descriptor, 100) != b"outside"
            with working_folder.writing("sub/new.txt") as place:
                descriptor = os.open(
                    place.name, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=place.parent
                )
                os.close(descriptor)
            inside += 1
        except ToolFailed:
            refused += 1

    assert os.listdir(outside) == ["file.txt"]
    # Both happened, so the race was on.
    assert min(inside, refused) > 0
