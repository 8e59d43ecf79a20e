"""Obtaining the Temporal server: each way in its turn, one sentence where all fail."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from everturn.errors import RuntimeUnavailable, UsageError
from everturn_workers.fetch import Sources, fetch, find

SERVES = "#!/bin/sh\necho '--sqlite-pragma stringArray'\n"
TOO_OLD = "#!/bin/sh\necho '--ip string'\n"
DOWNLOADS = f"""\
import sys
from pathlib import Path
(Path(sys.argv[1]) / "temporal-sdk").write_text({SERVES!r})
"""
REFUSED = "import sys; sys.exit('no route to host')"
SILENT = "import signal; signal.pause()"
BUILDS = f"""\
#!/bin/sh
test "$1" = install || exit 9
mkdir -p "$GOBIN"
cat > "$GOBIN/temporal" <<'EOF'
{SERVES}EOF
chmod +x "$GOBIN/temporal"
"""


class Machine:
    """A machine of the test's own making: commands on PATH, a cache, what a download does."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.path = folder / "path"
        self.cache = folder / "cache" / "bin"
        self.path.mkdir()
        self.variables: dict[str, str] = {}
        self.download = REFUSED

    def has(self, command: str, script: str) -> Path:
        return executable(self.path / command, script)

    @property
    def sources(self) -> Sources:
        environment = {"PATH": f"{self.path}:/usr/bin:/bin", **self.variables}
        download = (sys.executable, "-c", self.download)
        return Sources(self.cache, environment, download, silence_seconds=0.3)

    def fetch(self) -> Path:
        return fetch(self.said.append, self.sources)


def executable(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_command_on_path_is_taken_as_it_is(machine: Machine):
    on_path = machine.has("temporal", SERVES)

    assert machine.fetch() == on_path
    assert machine.said == []


def test_a_command_on_path_that_lacks_our_options_is_passed_over(machine: Machine):
    machine.has("temporal", TOO_OLD)
    cached = executable(machine.cache / "temporal", SERVES)

    assert machine.fetch() == cached


def test_a_download_is_kept_for_the_next_time(machine: Machine):
    machine.download = DOWNLOADS

    made = machine.fetch()

    assert made == machine.cache / "temporal"
    machine.download = REFUSED
    assert machine.fetch() == made
    assert sorted(path.name for path in machine.cache.iterdir()) == ["fetch.lock", "temporal"]


@pytest.mark.parametrize("download", [REFUSED, SILENT])
def test_a_download_that_fails_or_falls_silent_is_followed_by_go(machine: Machine, download: str):
    machine.download = download
    machine.has("go", BUILDS)

    assert machine.fetch() == machine.cache / "temporal"
    assert any("building" in line.lower() for line in machine.said)


def test_where_every_way_fails_one_sentence_says_what_to_do(machine: Machine):
    machine.has("go", "#!/bin/sh\necho 'proxy.golang.org: no route to host' >&2\nexit 1\n")

    with pytest.raises(RuntimeUnavailable) as failed:
        machine.fetch()

    said = str(failed.value)
    assert "\n" not in said
    assert said.startswith("No Temporal server could be obtained (the download")
    assert "proxy.golang.org: no route to host" in said
    assert "EVERTURN_TEMPORAL_ADDRESS" in said
    assert list(machine.cache.iterdir()) == [machine.cache / "fetch.lock"]


def test_a_binary_that_is_named_and_does_not_serve_is_an_error_at_once(machine: Machine):
    machine.variables["EVERTURN_TEMPORAL_BINARY"] = "/nowhere/temporal"

    with pytest.raises(UsageError, match="names /nowhere/temporal, which is not there"):
        machine.fetch()


def test_a_binary_that_is_named_goes_before_all_others(machine: Machine, tmp_path: Path):
    machine.has("temporal", SERVES)
    named = executable(tmp_path / "mine", SERVES)
    machine.variables["EVERTURN_TEMPORAL_BINARY"] = str(named)

    assert find(machine.sources) == named


def test_two_processes_do_not_build_at_once(machine: Machine, tmp_path: Path):
    count = tmp_path / "count"
    machine.has("go", BUILDS.replace("mkdir", f"echo build >> {count}\nsleep 1\nmkdir"))
    both = [threading.Thread(target=machine.fetch) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()

    assert count.read_text() == "build\n"
    assert "Another process obtains the Temporal server; waiting for it." in machine.said


def test_what_a_killed_build_left_is_cleared_away(machine: Machine):
    machine.has("go", BUILDS)
    (machine.cache / ".fetching-old").mkdir(parents=True)

    machine.fetch()

    assert not (machine.cache / ".fetching-old").exists()


def test_as_a_command_it_fails_with_one_line_and_no_traceback(tmp_path: Path):
    (tmp_path / "data").write_text("")
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "XDG_DATA_HOME": str(tmp_path / "data")}
    began = time.monotonic()

    ran = subprocess.run(
        [sys.executable, "-m", "everturn_workers.fetch"],
        env=environment,
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 1
    assert "make that folder writable" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert time.monotonic() - began < 15
