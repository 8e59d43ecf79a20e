"""Installed packages bring tools, and a broken or colliding one is told of in a sentence."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from installed import ORDERS, Install, packages

from everturn_activities.tool_packages import find_packaged
from everturn_activities.workspace import load


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    with packages(tmp_path) as install:
        yield install


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    (path / "tools").mkdir(parents=True)
    (path / "everturn.toml").write_text("")
    return path


@pytest.mark.parametrize(
    ("point", "names"),
    [
        ("all = shop_tools", {"add", "order", "order_slowly"}),
        ("one = shop_tools:add", {"add"}),
        ("some = shop_tools:LISTED", {"order"}),
        ("all = shop_tools\none = shop_tools:add", {"add", "order", "order_slowly"}),
    ],
)
def test_an_entry_point_names_a_module_a_tool_or_a_list(install, point, names):
    install("shop_tools", point)
    found = find_packaged()
    assert found.tools.keys() == names
    assert {source for _, source in found.tools.values()} == {"package shop_tools"}
    assert found.notes == ()


def test_a_workspace_has_the_tools_of_packages_beside_its_own(install, root):
    install("shop_tools", "all = shop_tools")
    loaded = load(root)
    spec = loaded.spec().tool("order")
    assert spec is not None
    assert (spec.source, spec.effect) == ("package shop_tools", "keyed")
    assert loaded.tool("order") is not None
    (root / "everturn.toml").write_text('[tools]\nexclude = ["order"]\n')
    assert load(root).spec().tool("order") is None


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)", "cannot be loaded: SystemExit: 3;"),
        ("def (", "SyntaxError"),
    ],
)
def test_a_broken_package_is_one_sentence_and_all_others_work(
    install, root, caplog, code: str, told: str
):
    install("broken_tools", "all = broken_tools", code)
    install("shop_tools", "all = shop_tools")
    for _ in range(2):
        loaded = load(root)
    (note,) = loaded.notes
    assert note.startswith("The tools of package broken_tools (all = broken_tools)")
    assert told in note
    assert "\n" not in note
    assert loaded.tool("add") is not None
    assert [one.getMessage() for one in caplog.records] == [note]


def test_an_entry_point_without_any_tool_is_told(install):
    install("shop_tools", "name = shop_tools:threading\nno = shop_tools:GONE")
    first, second = find_packaged().notes
    assert first.startswith("The entry point name = shop_tools:threading of package shop_tools")
    assert "AttributeError" in second


def test_names_that_are_taken_are_left_out_and_told(install, root):
    install("a_tools", "all = a_tools:add")
    install("b_tools", "all = b_tools:add")
    code = ORDERS.replace("def add", "def read_file").replace("= add", "= read_file")
    install("c_tools", "all = c_tools:read_file", code)
    install("d_tools", "all = d_tools:order")
    (root / "tools" / "own.py").write_text(
        ORDERS.replace("def add", "def own").replace("= add", "= own")
    )
    loaded = load(root)
    assert loaded.specs["add"].source == "package a_tools"
    assert loaded.specs["read_file"].source == "builtin"
    assert loaded.specs["order"].source == "tools/own.py"
    assert [note.partition("; ")[0] for note in loaded.notes] == [
        "Tool add of package b_tools is left out, because one of package a_tools has its name",
        "Tool read_file of package c_tools is left out, because one of the built-in ones has its"
        " name",
        "Tool order of package d_tools is left out, because one of tools/own.py has its name",
    ]
