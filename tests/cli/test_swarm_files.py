"""Files of items and of results: what is wrong is named first, and no line is written twice."""

import io
import json
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from everturn.errors import UsageError
from everturn.swarm_views import ItemView
from everturn_workers.cli import swarm_items
from everturn_workers.cli.main import app
from everturn_workers.cli.swarm_items import Items
from everturn_workers.cli.swarm_results import ResultFile


def given(monkeypatch: pytest.MonkeyPatch, text: bytes) -> Path:
    """stdin with this text."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    return Path("-")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b'{"task": "a"}\n\n{"task": \n', "Line 3 of stdin is no JSON"),
        (b'{"task": "a"}\n{"job": "b"}\n', "Line 2 of stdin: Item 2 has no field 'task'"),
        (b'{"task": "a"}\n["b"]\n', "Line 2 of stdin: Item 2 is no JSON object"),
        (b'{"id": 2, "task": "a"}\n{"task": "b"}', "Lines 1 and 2 of stdin have the same id '2'"),
        (b'{"task": "\\ud800"}\n', "Line 1 of stdin is no JSON"),
        (b'{"task": NaN}\n', "Line 1 of stdin is no JSON"),
        (b'{"task": "\xff"}\n', "Line 1 of stdin is no JSON"),
        (b'{"task": "%s"}\n' % (b"x" * 300_000), "Line 1 of stdin: The prompt of item 1 has"),
        (b'{"task": "a", "more": "%s"}\n' % (b"x" * 1_100_000), "Line 1 of stdin is longer than"),
        (b"\n\n", "stdin has no items"),
    ],
    ids=range(10),
)
def test_a_broken_line_is_named_with_its_number(
    monkeypatch: pytest.MonkeyPatch, text: bytes, sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        Items(given(monkeypatch, text), "Do {task}.")


def test_a_file_of_too_many_items_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarm_items, "ITEMS_MAX", 2)
    with pytest.raises(UsageError, match="stdin has more than 2 items"):
        Items(given(monkeypatch, b'{"task": "a"}\n' * 3), "Do it.")


def test_items_may_come_by_a_pipe_that_a_shell_makes(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    writer = threading.Thread(target=pipe.write_text, args=('{"task": "a"}\n{"task": "b"}\n',))
    writer.start()
    with Items(pipe, "Do {task}.") as found:
        writer.join()
        assert list(found.pieces()) == [[{"task": "a"}, {"task": "b"}]]


def test_a_file_that_cannot_be_read_to_its_end_is_named() -> None:
    with pytest.raises(UsageError, match="/proc/self/mem cannot be read: Input/output error"):
        Items(Path("/proc/self/mem"), "Do it.")


@pytest.mark.parametrize("left", ['{"task": "a"}\n', '{"task": "a"}\n{"ta'])
def test_a_file_that_shrinks_while_it_is_sent_is_told_of(tmp_path: Path, left: str) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text('{"task": "a"}\n{"task": "b"}\n')
    with Items(file, "Do {task}.") as found:
        file.write_text(left)
        with pytest.raises(UsageError, match="since it was checked: item 2 of 2 is not there"):
            list(found.pieces())


def test_what_is_appended_to_a_file_while_it_is_sent_is_not_sent(tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text('{"task": "a"}\n')
    with Items(file, "Do {task}.") as found:
        file.write_text('{"task": "a"}\n{"task": "b"}\n')
        assert list(found.pieces()) == [[{"task": "a"}]]


def test_a_disk_that_is_full_is_told_of_with_how_to_go_on() -> None:
    results = ResultFile(Path("/dev/full"), "item", "w")
    with pytest.raises(UsageError, match=r"/dev/full cannot be written: No space .* attach w"):
        results.add([item(1, 1)])
    results.close()


def test_items_are_sent_in_pieces_that_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text("\n".join(json.dumps({"task": "x" * 10, "n": n}) for n in range(5)) + "\n\n")
    with Items(file, "Do {task}.") as found:
        monkeypatch.setattr(swarm_items, "PIECE_ITEMS", 2)
        assert [[item["n"] for item in piece] for piece in found.pieces()] == [[0, 1], [2, 3], [4]]
        monkeypatch.setattr(swarm_items, "PIECE_BYTES", 30)
        assert [len(piece) for piece in found.pieces()] == [1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--width", "0"), "--width is 0: input should be greater"),
        (("--deadline", "soon"), "The deadline 'soon' is not possible"),
        (("--quorum", "9"), "A quorum of 9 is not possible with 1 items"),
        (("--budget", "-1"), "--budget is -1.0"),
        (("--prompt-template", "@none.txt"), "The template none.txt cannot be read"),
        (("--hedge", "1"), "--hedge is 1.0: input should be greater than 1"),
        (("--prompt-template", "{"), "has a single '{'"),
        (("--id", "a:b"), "The swarm id 'a:b' is not possible"),
        (("--detach", "--output", "x"), "writes no file"),
    ],
    ids=range(9),
)
def test_a_wrong_flag_is_named_before_anything_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVERTURN_HOME", str(tmp_path / "home"))
    (tmp_path / "everturn.toml").touch()
    (tmp_path / "items.jsonl").write_text('{"task": "a"}\n')
    with pytest.raises(UsageError, match=sentence):
        app(
            ["swarm", "run", "items.jsonl", "--prompt-template", "{task}", *flags],
            standalone_mode=False,
        )
    assert not (tmp_path / "home").exists()


def item(n: int, settled: int, **more: Any) -> ItemView:
    outcome = {"state": "done", "outcome": "completed", "session": f"w:{n}"}
    return ItemView.model_validate({"id": str(n), "n": n, "settled": settled, **outcome, **more})


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]


def test_a_line_that_was_cut_off_is_written_anew_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    results = ResultFile(path, "completion", "w")
    results.add([item(3, 1), item(1, 2), item(2, 3)])
    results.close()
    path.write_bytes(path.read_bytes()[:-9])

    results = ResultFile(path, "completion", "w")
    assert results.after == 2
    results.add([item(1, 2), item(2, 3), item(4, 4)])
    results.close()
    assert numbers(path) == [3, 1, 2, 4]


def test_lines_in_the_order_of_items_are_gone_on_with_in_the_order_of_ends(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    results = ResultFile(path, "item", "w")
    results.add([item(1, 3), item(2, 1)])
    results.close()
    results = ResultFile(path, "completion", "w")
    # The second to end is not there yet.
    assert results.after == 1
    results.add([item(4, 2), item(1, 3), item(3, 4)])
    results.close()
    assert numbers(path) == [1, 2, 4, 3]
    with pytest.raises(UsageError, match="is not in the order of items"):
        ResultFile(path, "item", "w")


def test_what_is_worked_again_leaves_the_file_and_comes_again(tmp_path: Path) -> None:
    for order, left in (("completion", [1, 3]), ("item", [1])):
        path = tmp_path / f"{order}.jsonl"
        results = ResultFile(path, order, "w")  # type: ignore[arg-type]
        results.add([item(1, 1), item(2, 2, outcome="failed"), item(3, 3)])
        assert results.unsure == {2: 2}
        results.forget({2})
        assert (numbers(path), results.after, results.unsure) == (left, 1, {})
        results.add([item(3, 3), item(2, 4)] if order == "completion" else [item(2, 4), item(3, 3)])
        results.close()
        assert sorted(numbers(path)) == [1, 2, 3]


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    for line, said in (
        ("no", "Line 1 of .* is no result of a swarm"),
        ('{"n": 1}', "is no result of a swarm"),
        ('{"n": 1, "settled": 1, "session": "v:1"}', "has results of another swarm"),
    ):
        path.write_text(f"{line}\n")
        with pytest.raises(UsageError, match=said):
            ResultFile(path, "completion", "w")
        assert path.read_text() == f"{line}\n"
    first = ResultFile(tmp_path / "mine.jsonl", "item", "w")
    with pytest.raises(UsageError, match="is being written by another command"):
        ResultFile(tmp_path / "mine.jsonl", "item", "w")
    first.close()
    with pytest.raises(UsageError, match="cannot be written"):
        ResultFile(tmp_path / "no" / "out.jsonl", "item", "w")
    # What is no file has nothing to go on with.
    nothing = ResultFile(Path("/dev/null"), "item", "w")
    nothing.add([item(1, 1)])
    nothing.close()
