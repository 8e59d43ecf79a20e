"""What a command may use, as an operator sets it."""

import pytest

from everturn.errors import UsageError
from everturn_workers.settings import read_settings


def test_limits_of_commands_come_from_the_file_and_the_environment(tmp_path, monkeypatch):
    (tmp_path / "everturn.toml").write_text("[command_limits]\nprocesses = 20\n")
    assert read_settings(home=tmp_path).command_limits.processes == 20
    monkeypatch.setenv("EVERTURN_COMMAND_LIMITS", '{"processes": 30}')
    assert read_settings(home=tmp_path).command_limits.processes == 30


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            '{"processes": 1}',
            "Setting 'command_limits.processes' is wrong: Input should be greater than or equal to"
            " 8; mend the variable EVERTURN_COMMAND_LIMITS.",
        ),
        (
            "256",
            "Setting 'command_limits' is wrong: Input should be a valid dictionary or instance of"
            " CommandLimits; mend the variable EVERTURN_COMMAND_LIMITS.",
        ),
        (
            "many",
            'EVERTURN_COMMAND_LIMITS is no JSON object such as {"memory_bytes": 2147483648,'
            ' "processes": 256}; mend or unset it.',
        ),
    ],
)
def test_wrong_limits_are_told_in_one_sentence(tmp_path, monkeypatch, given, sentence):
    monkeypatch.setenv("EVERTURN_COMMAND_LIMITS", given)
    with pytest.raises(UsageError) as raised:
        read_settings(home=tmp_path)
    assert str(raised.value) == sentence
