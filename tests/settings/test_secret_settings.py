"""Secrets among the settings: out of files of their own, and out of all that is shown."""

import os
from pathlib import Path

import pytest

from everturn.errors import UsageError
from everturn_workers.runtime import open_runtime
from everturn_workers.settings import read_settings
from everturn_workers.settings_secrets import FILE_BYTES_MAX, masked_url, parts_to_hide
from everturn_workers.settings_shown import shown
from everturn_workers.supervisor import child_environment


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "api_key"
    file.write_text("canary-of-the-api\n")
    monkeypatch.setenv("EVERTURN_API_KEY_FILE", str(file))
    return file


def test_a_secret_is_read_from_the_file_that_its_variable_names(
    tmp_path: Path, key_file: Path
) -> None:
    (tmp_path / "everturn.toml").write_text('api_key = "another"\n')

    key = read_settings(home=tmp_path).api_key

    assert key is not None
    assert key.get_secret_value() == "canary-of-the-api"


def test_a_secret_that_is_given_twice_is_refused(
    tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERTURN_API_KEY", "another")

    with pytest.raises(UsageError, match="Both EVERTURN_API_KEY and EVERTURN_API_KEY_FILE are set"):
        read_settings(home=tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file"),
        (b" \n", "is empty"),
        (b"\xff", "not valid UTF-8"),
        (b"x" * (FILE_BYTES_MAX + 1), "longer than 65,536 bytes"),
    ],
)
def test_a_secrets_file_that_holds_none_is_told_of(
    tmp_path: Path, key_file: Path, content: bytes | None, says: str
) -> None:
    if content is None:
        key_file.unlink()
    else:
        key_file.write_bytes(content)

    with pytest.raises(UsageError, match=says) as refused:
        read_settings(home=tmp_path)

    assert "EVERTURN_API_KEY_FILE" in str(refused.value)


def test_children_are_told_the_secret_and_not_its_file_too(
    tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = child_environment(read_settings(home=tmp_path), "127.0.0.1:7233")

    assert told["EVERTURN_API_KEY"] == "canary-of-the-api"
    assert "EVERTURN_API_KEY_FILE" not in told


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://me:canary@db:5432/x", "postgresql://me:***@db:5432/x"),
        ("postgresql://me@db/x?sslmode=require", "postgresql://me@db/x?sslmode=require"),
        (
            "postgresql://db/x?user=me&password=canary&sslmode=require",
            "postgresql://db/x?user=me&password=***&sslmode=require",
        ),
        ("redis://:canary@[::1]:6379/0", "redis://:***@[::1]:6379/0"),
        ("redis://me:can:a@ry@host/0", "redis://me:***@host/0"),
        ("redis://host/0#canary", "redis://host/0"),
        ("sqlite:////srv/everturn.db", "sqlite:////srv/everturn.db"),
        ("redis://[canary", "***"),
        ("me:canary@host", "***"),
        ("redis://:can#ary@host/0", "***"),
        ("postgresql://me:can/ary@host/0", "***"),
        ("postgresql://me:can?ary@host/0", "***"),
        ("postgresql://me:canary", "***"),
        ("postgresql://me:12/canary@host/0", "***"),
    ],
)
def test_a_url_is_shown_without_what_opens_the_door(url: str, told: str) -> None:
    assert masked_url(url) == told


def test_no_secret_is_in_what_is_shown_or_printed_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "everturn.toml").write_text(
        'api_key = "canary-1"\nredis_url = "redis://:canary-2@host/0"\n'
        'database_url = "postgresql://me:canary-3@db/x"\n'
    )

    settings = read_settings(home=tmp_path)

    assert "canary" not in repr(settings)
    assert "canary" not in repr(shown(settings, home=tmp_path))


def test_a_password_in_a_query_is_hidden_too() -> None:
    assert parts_to_hide("redis_url", "redis://host/0?password=canary") == ("canary",)


async def test_a_secret_of_a_file_is_taken_out_of_what_tools_say(
    tmp_path: Path, key_file: Path
) -> None:
    (tmp_path / "everturn.toml").write_text(
        'redis_url = "redis://me:canary%2Fof-redis@127.0.0.1:1/0"\n'
    )

    async with open_runtime(read_settings(home=tmp_path)) as runtime:
        said = runtime.vault.scrubber.scrubbed(
            "canary-of-the-api, canary%2Fof-redis, canary/of-redis"
        )

    assert "canary" not in said
    assert os.environ.get("EVERTURN_API_KEY") is None
