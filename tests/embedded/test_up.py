"""`up`: one a home, children that come back, nothing left behind; with real processes."""

import itertools
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from ups import UpProcess, wait_for

from everturn_workers import processes
from everturn_workers.locks import is_held
from everturn_workers.server import lock_path
from everturn_workers.up_record import running

StartUp = Callable[..., UpProcess]


def gone(pid: int) -> bool:
    return processes.identify(pid) is None


def test_an_up_runs_a_server_a_worker_and_an_api_and_tells_where(
    up: StartUp, home: Path, unused_tcp_port: int
):
    one = up(EVERTURN_PORT=str(unused_tcp_port))

    found = one.ready()

    assert set(found.children) == {"temporal", "worker", "api"}
    assert found.api_url == f"http://127.0.0.1:{unused_tcp_port}"
    environment = (home / "run" / "worker.env").read_text().splitlines()
    assert f"EVERTURN_TEMPORAL_ADDRESS={found.temporal_address}" in environment
    assert (home / "run" / "up.json").stat().st_mode & 0o777 == 0o600


def test_an_up_whose_port_is_taken_starts_nothing(up: StartUp, home: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        one = up(EVERTURN_PORT=str(taken.getsockname()[1]))
        code = one.process.wait(timeout=20)

    [said] = one.output.read_text().splitlines()
    assert code == 1
    assert "choose another port" in said
    assert not is_held(lock_path(home))
    assert running(home) is None


def test_a_second_up_on_the_same_home_refuses_in_one_sentence(up: StartUp, home: Path):
    first = up()
    first.ready()
    before = running(home)

    second = up()

    assert second.process.wait(timeout=20) == 1
    said = second.output.read_text().splitlines()[-1]
    assert str(home) in said
    assert f"process {first.process.pid}" in said
    assert running(home) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_up_leaves_no_process_and_no_record(
    up: StartUp, home: Path, number: signal.Signals
):
    one = up()
    children = one.ready().children

    assert one.stop(number) == 0

    assert all(gone(pid) for pid in children.values())
    assert running(home) is None
    assert not (home / "run" / "up.json").exists()


def test_the_children_of_a_killed_up_die_with_it(up: StartUp, home: Path):
    one = up()
    children = one.ready().children

    one.kill()

    for pid in children.values():
        wait_for(lambda pid=pid: gone(pid))
    assert running(home) is None


def test_children_that_outlive_a_killed_up_are_ended_at_the_next_start(up: StartUp, home: Path):
    one = up("stubborn")
    left = one.ready().children
    one.kill()
    assert not gone(left["worker"])

    second = up()
    found = second.ready()

    assert gone(left["worker"])
    assert gone(left["api"])
    assert set(left.values()).isdisjoint(found.children.values())


def test_a_process_that_took_the_number_of_a_dead_child_is_left_alone(up: StartUp, home: Path):
    one = up("stubborn")
    children = one.ready().children
    one.kill()
    path = home / "run" / "up.json"
    record = json.loads(path.read_text())
    record["children"]["worker"]["started"] = "1"
    path.write_text(json.dumps(record))

    up().ready()

    assert not gone(children["worker"])
    assert gone(children["api"])


@pytest.mark.parametrize("name", ["temporal", "worker", "api"])
def test_a_killed_child_is_started_again(up: StartUp, home: Path, name: str):
    one = up()
    before = one.ready()

    os.kill(before.children[name], signal.SIGKILL)

    wait_for(lambda: f"The {name} is back." in one.output.read_text())
    after = one.ready()
    assert after.children[name] != before.children[name]
    assert after.temporal_address == before.temporal_address
    others = {other for other in before.children if other != name}
    assert all(after.children[other] == before.children[other] for other in others)


def test_a_child_that_cannot_start_ends_the_up_with_its_last_words(up: StartUp, home: Path):
    one = up("ends")

    assert one.process.wait(timeout=20) == 1

    said = one.output.read_text().splitlines()[-1]
    assert "ended (code 3) before it was ready" in said
    assert "the port is taken" in said
    assert not is_held(lock_path(home))


def test_a_child_that_keeps_crashing_is_started_ever_more_slowly(up: StartUp, home: Path):
    up("crashes")

    def starts() -> list[float]:
        file = home / "run" / "worker.starts"
        return [float(line) for line in file.read_text().splitlines()] if file.exists() else []

    wait_for(lambda: len(starts()) >= 5)
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts())]
    # At once, then 0.2, 0.4 and 0.8 s; starting takes its time besides.
    assert gaps[1] > 0.2
    assert gaps[2] > 0.4
    assert gaps[3] > 0.8


def test_where_no_server_can_be_obtained_the_up_ends_with_that_sentence(
    up: StartUp, tmp_path: Path
):
    one = up(PATH="/usr/bin:/bin", XDG_DATA_HOME=str(tmp_path), EVERTURN_TEMPORAL_BINARY="")

    assert one.process.wait(timeout=20) == 1

    assert one.output.read_text().splitlines()[-1] == "No Temporal server could be obtained."


def test_an_up_with_a_temporal_address_of_its_own_starts_no_server(up: StartUp):
    found = up(EVERTURN_TEMPORAL_ADDRESS="127.0.0.1:7233").ready()

    assert set(found.children) == {"worker", "api"}
    assert found.temporal_address == "127.0.0.1:7233"


def test_a_second_signal_kills_what_does_not_end(up: StartUp):
    one = up("stubborn")
    children = one.ready().children
    one.process.send_signal(signal.SIGINT)
    wait_for(lambda: "Stopping" in one.output.read_text())

    one.process.send_signal(signal.SIGINT)

    assert one.process.wait(timeout=10) == 0
    assert all(gone(pid) for pid in children.values())


def test_no_key_stands_on_a_childs_command_line(up: StartUp, home: Path):
    one = up(EVERTURN_API_KEY="canary-key")
    children = one.ready().children

    for name, pid in children.items():
        assert b"canary-key" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        knows = b"canary-key" in Path(f"/proc/{pid}/environ").read_bytes()
        assert knows == (name != "temporal")
    assert "canary-key" not in (home / "run" / "up.json").read_text()
