"""What providers allow, as a person declares it."""

import json
from pathlib import Path

import pytest

from everturn.errors import UsageError
from everturn_workers.settings import read_settings


def test_limits_are_read_from_the_file_in_the_home_folder(tmp_path: Path) -> None:
    (tmp_path / "everturn.toml").write_text(
        '[provider_limits."api.openai.com"]\n'
        "requests_per_minute = 500\n"
        'concurrency = { "openai/gpt-5" = 4, "*" = 20 }\n'
    )
    limits = read_settings(home=tmp_path).provider_limits["api.openai.com"]
    assert limits.requests_per_minute == 500
    assert limits.slots("openai/gpt-5") == 4
    assert limits.slots("openai/gpt-5-mini") == 20


def test_limits_are_read_from_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTURN_PROVIDER_LIMITS", '{"*": {"requests_per_second": 20}}')
    assert read_settings(home=tmp_path).provider_limits["*"].requests_per_second == 20


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("20 a second", "JSON"),
        ({"*": {"requests_per_second": -1}}, "provider_limits.*.requests_per_second"),
        ({"*": {"requests_per_hour": 1}}, "requests_per_hour"),
        ({"*": {"concurrency": 0}}, "concurrency"),
        ({"*": {"concurrency": {"a": 0}}}, "concurrency"),
    ],
)
def test_what_is_wrong_is_named_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: object, named: str
) -> None:
    text = given if isinstance(given, str) else json.dumps(given)
    monkeypatch.setenv("EVERTURN_PROVIDER_LIMITS", text)
    with pytest.raises(UsageError) as raised:
        read_settings(home=tmp_path)
    assert named in str(raised.value)
    assert "EVERTURN_PROVIDER_LIMITS" in str(raised.value)
    assert "\n" not in str(raised.value)
