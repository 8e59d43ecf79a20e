"""code_execution: a piece of code in the sandbox, where settings enable it."""

import shutil

import pytest

from everturn.errors import WorkspaceError
from everturn_activities.sandbox import probe
from everturn_activities.workspace import load

needs_sandbox = pytest.mark.skipif(not probe().available, reason=str(probe().reason))
_USR = "/usr/local/bin:/usr/bin"


@needs_sandbox
@pytest.mark.parametrize(
    ("language", "code", "needs"),
    [
        ("python", "import sys\nopen('out', 'w').write('x')\nprint(6 * 7); sys.exit(3)", "python3"),
        (
            "node",
            "require('fs').writeFileSync('out', 'x'); console.log(42); process.exit(3)",
            "node",
        ),
        ("shell", "printf x > out; echo 42; exit 3", "sh"),
    ],
)
async def test_code_runs_in_the_working_folder(call, folder, language, code, needs):
    if shutil.which(needs, path=_USR + ":/bin") is None:
        pytest.skip(f"no {needs} below /usr")

    result = await call("code_execution", {"language": language, "code": code})

    assert result.text == "exit code: 3\n42\n"
    assert (folder / "out").read_text() == "x"


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("a\0b", "The code contains a NUL byte, which no program can."),
        (
            "x" * 100_001,
            "The code has 100001 bytes, and the limit is 100000; write it to a file and run that.",
        ),
    ],
)
async def test_code_that_cannot_be_run_is_refused_in_a_sentence(call, code, sentence):
    result = await call("code_execution", {"language": "python", "code": code})
    assert (result.failed, result.text) == (True, sentence)


def test_E9_code_execution_is_absent_unless_settings_enable_it(folder):
    settings = folder / "everturn.toml"
    settings.write_text("")
    assert "code_execution" not in [tool.name for tool in load(folder).spec().tools]
    settings.write_text('[tools]\nenable = ["code_execution"]\n')
    assert "code_execution" in [tool.name for tool in load(folder).spec().tools]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            '[tools]\nenable = ["code_executoin"]\n',
            "everturn.toml enables tool 'code_executoin' (did you mean 'code_execution'?); what is"
            " to be enabled is code_execution: mend [tools] enable.",
        ),
        (
            '[network]\nallowed_hosts = ["127.1"]\n',
            "everturn.toml line 2: '127.1' is no host; write a name such as example.com or"
            " *.example.com, an address, or a network such as 10.0.0.0/8, each with a port where"
            " it is not 80 or 443; mend it.",
        ),
    ],
)
def test_a_wrong_setting_is_told_in_a_sentence(folder, settings, sentence):
    (folder / "everturn.toml").write_text(settings)
    with pytest.raises(WorkspaceError) as raised:
        load(folder).spec()
    assert str(raised.value).endswith(sentence)


def test_hosts_of_the_settings_hold_for_agents_that_name_none(folder):
    (folder / "everturn.toml").write_text('[network]\nallowed_hosts = ["example.com"]\n')
    (folder / "agents").mkdir()
    (folder / "agents/own.md").write_text("---\nallowed_hosts: [other.example]\n---\nWork.\n")
    (folder / "agents/none.md").write_text("---\nallowed_hosts: []\n---\nWork.\n")

    hosts = [load(folder).spec(name).agent.allowed_hosts for name in (None, "own", "none")]

    assert hosts == [("example.com",), ("other.example",), ()]
