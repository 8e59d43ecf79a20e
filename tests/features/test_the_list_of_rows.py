"""The list of rows, and how tests carry them."""

import re
import subprocess
import sys
from pathlib import Path

from rows import outcomes, rows_of, sentences, table

HERE = Path(__file__).parent

SOME = '''
def test_B8_C8_of_two_rows():
    pass

def test_other():
    """T3, T4: by its docstring."""
    assert False
'''


def test_a_row_is_carried_by_a_name_or_the_beginning_of_a_docstring():
    assert rows_of("test_B8_C8_the_last_step[inline]", None) == ("B8", "C8")
    assert rows_of("test_t34_a_workspace", "T34: given first start") == ("T34",)
    assert rows_of("test_a_turn", "T19: what it begins with. B9 is another.") == ("T19",)
    assert rows_of("test_a_turn", "K1, R2 and E3: all of them.") == ("K1", "R2", "E3")
    assert rows_of("test_K1_a", "Also K8 (it follows) and E23.") == ("K1", "K8", "E23")
    assert rows_of("test_utf8_and_B", "As in B8.") == ()


def test_every_row_of_the_list_is_there_once():
    letters = {row: letter for rows in sentences().values() for row, letter in rows.items()}
    assert len(letters) == 31 + 25 + 30 + 39 + 34 + 7
    assert all(re.fullmatch(r"[KREBTU]\d+", row) for row in letters)


def test_the_table_says_of_each_row_whether_its_tests_pass(tmp_path: Path):
    (tmp_path / "test_some.py").write_text(SOME)
    (tmp_path / "conftest.py").write_text((HERE.parent / "conftest.py").read_text())
    (tmp_path / "none.ini").write_text("[pytest]\n")
    report = tmp_path / "report.xml"

    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(f"--junitxml={report}", f"--rootdir={tmp_path}", "-c", str(tmp_path / "none.ini")),
            *("-o", "markers=rows:\nlong:", str(tmp_path)),
        ],
        env={"PYTHONPATH": str(HERE.parent), "PATH": ""},
        check=False,
        capture_output=True,
    )
    found = outcomes(report)

    assert found == {"B8": ["passed"], "C8": ["passed"], "T3": ["failed"], "T4": ["failed"]}
    lines = {line.split()[0]: line.split()[1] for line in table(found) if line.startswith("  ")}
    assert (lines["B8"], lines["T3"], lines["K1"]) == ("passed", "failed", "missing")
