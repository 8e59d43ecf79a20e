"""make features: which rows of the list a test carries, and the table of what came of them."""

import re
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

LIST = Path(__file__).parent / "features" / "rows.toml"

_ROW = r"[KREBTUCkrebtuc]\d{1,2}"
_IN_NAME = re.compile(rf"_({_ROW})(?=_|$)")
_IN_DOCSTRING = re.compile(rf"({_ROW}(?:(?:, | and )(?:{_ROW}))*)[:.]")
_WORST_FIRST = ("failed", "skipped", "passed")


def rows_of(name: str, docstring: str | None) -> tuple[str, ...]:
    """The ids in a test's name, and at the beginning of its docstring, or after its `Also`."""
    carried = _IN_NAME.findall(name.partition("[")[0])
    said = (docstring or "").strip()
    if found := _IN_DOCSTRING.match(said):
        carried += re.findall(_ROW, found[1])
    elif said.startswith("Also "):
        carried += re.findall(rf"\b{_ROW}\b", said)
    return tuple(dict.fromkeys(row.upper() for row in carried))


def sentences() -> dict[str, dict[str, str]]:
    """The rows by system."""
    return tomllib.loads(LIST.read_text())


def outcomes(report: Path) -> dict[str, list[str]]:
    """How the tests of each row ended, from a JUnit report."""
    found: dict[str, list[str]] = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        ended = "passed"
        for child in case:
            if child.tag in ("failure", "error"):
                ended = "failed"
            elif child.tag == "skipped":
                ended = "skipped"
        for one in case.iter("property"):
            if one.get("name") == "row":
                found[str(one.get("value"))].append(ended)
    return found


def table(found: dict[str, list[str]]) -> Iterator[str]:
    """The rows with the worst of their tests' outcomes, and the sums."""
    sums: dict[str, int] = defaultdict(int)
    for system, rows in sentences().items():
        yield f"\n{system}"
        for row, sentence in rows.items():
            ended = found.get(row, [])
            worst = next((one for one in _WORST_FIRST if one in ended), "missing")
            sums[worst] += 1
            count = f"{len(ended)} test{'s' * (len(ended) != 1)}" if ended else ""
            yield f"  {row:<4} {worst:<8} {count:<9} {sentence}"
    yield "\n" + ", ".join(f"{count} {how}" for how, count in sorted(sums.items()))


def main() -> int:
    """Run the tests that carry rows, and print the table; arguments are for pytest."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        marked = ("-m", "rows and not long", f"--junitxml={report}")
        given = sys.argv[1:] or [str(Path(__file__).parent)]
        ran = subprocess.run([sys.executable, "-m", "pytest", "-q", *marked, *given], check=False)
        if not report.exists():
            return ran.returncode
        found = outcomes(report)
    print("\n".join(table(found)))
    return 1 if any("failed" in ended for ended in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
