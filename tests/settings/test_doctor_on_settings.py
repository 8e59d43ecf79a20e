"""What `everturn doctor` says of keys, of files with secrets, of variables, and of blobs."""

from pathlib import Path

import pytest
from s3_servers import BUCKET, S3Server, keeping_server

from everturn_workers.check_blobs import check_blobs
from everturn_workers.check_settings import check_settings
from everturn_workers.home import prepare
from everturn_workers.settings import read_settings


def test_a_host_beyond_this_machine_without_a_key_is_named(tmp_path: Path) -> None:
    [check] = check_settings(read_settings(home=tmp_path, host="0.0.0.0"), {})

    assert not check.ok
    assert "EVERTURN_API_KEY" in check.sentence


def test_a_short_key_is_warned_about_and_no_key_is_shown(tmp_path: Path) -> None:
    short = check_settings(read_settings(home=tmp_path, api_key="canary"), {})
    long = check_settings(read_settings(home=tmp_path, api_key="canary-" * 5), {})

    assert [check.ok for check in short + long] == [True, True]
    assert (bool(short[0].mend), bool(long[0].mend)) == (True, False)
    assert "canary" not in f"{short}{long}"
    assert check_settings(read_settings(home=tmp_path), {}) == []


def test_a_file_with_a_secret_that_others_may_read_is_named(tmp_path: Path) -> None:
    home, file = prepare(tmp_path / "home"), tmp_path / "everturn.toml"
    file.write_text('redis_url = "redis://:canary@host/0"\n')
    settings = read_settings(home=home, config=file)

    file.chmod(0o640)
    [told] = check_settings(settings, {})
    file.chmod(0o600)

    assert (told.ok, told.mend) == (False, f"chmod 600 {file}")
    assert "redis_url" in told.sentence
    assert "canary" not in repr(told)
    assert check_settings(settings, {}) == []


def test_a_file_in_a_home_that_nobody_else_enters_may_be_readable(tmp_path: Path) -> None:
    home = prepare(tmp_path / "home")
    (home / "everturn.toml").write_text('redis_url = "redis://:canary@host/0"\n')
    (home / "everturn.toml").chmod(0o644)
    settings = read_settings(home=home)
    assert check_settings(settings, {}) == []

    home.chmod(0o755)

    assert [check.ok for check in check_settings(settings, {})] == [False]


def test_a_variable_that_is_no_setting_is_warned_about(tmp_path: Path) -> None:
    [check] = check_settings(read_settings(home=tmp_path), {"EVERTURN_PROT": "1"})

    assert check.ok
    assert "'EVERTURN_PORT'" in check.sentence
    assert check.mend


async def test_blobs_that_can_be_used_are_fine_and_others_are_named(
    tmp_path: Path, s3: S3Server, aws_credentials: None
) -> None:
    there = {"blobs_url": f"s3://{BUCKET}/x", "blobs_endpoint": s3.endpoint}
    away = {"blobs_url": f"s3://{BUCKET}/x", "blobs_endpoint": "http://127.0.0.1:1"}
    lacking = {"blobs_url": "s3://no-such-bucket/x", "blobs_endpoint": s3.endpoint}

    [fine] = await check_blobs(read_settings(home=tmp_path, **there))
    [nobody] = await check_blobs(read_settings(home=tmp_path, **away))
    [other] = await check_blobs(read_settings(home=tmp_path, **lacking))

    assert (fine.ok, nobody.ok, other.ok) == (True, False, False)
    assert f"s3://{BUCKET}/x" in nobody.sentence
    assert "no-such-bucket" in other.sentence
    client = s3.client()
    left = client.list_objects_v2(Bucket=BUCKET, Prefix="x/")
    client.close()
    assert left["KeyCount"] == 0


@pytest.mark.parametrize(
    ("answers", "ok", "says"),
    [
        ({"GET": "404 NoSuchKey"}, False, "do not give back what was just kept"),
        ({"GET": "403 AccessDenied"}, False, "it answers 403 AccessDenied"),
        ({"PUT": "403 AccessDenied"}, False, "it answers 403 AccessDenied"),
        ({"DELETE": "403 AccessDenied"}, True, "can be written and read, and not deleted"),
    ],
)
async def test_what_may_not_be_done_with_blobs_is_told(
    tmp_path: Path,
    aws_credentials: None,
    answers: dict[str, str],
    ok: bool,
    says: str,
) -> None:
    with keeping_server(answers) as endpoint:
        [check] = await check_blobs(
            read_settings(home=tmp_path, blobs_url=f"s3://{BUCKET}", blobs_endpoint=endpoint)
        )
    assert check.ok == ok
    assert says in check.sentence
    assert check.mend


async def test_a_probe_of_a_folder_of_blobs_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()

    [check] = await check_blobs(read_settings(home=tmp_path, blobs_url=f"file://{tmp_path}/blobs"))

    assert check.ok
    assert "can be written, read and deleted" in check.sentence
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("place", "ok"), [("blobs", True), ("file/blobs", False)])
async def test_a_folder_of_blobs_must_be_one(tmp_path: Path, place: str, ok: bool) -> None:
    (tmp_path / "file").write_text("")

    [check] = await check_blobs(
        read_settings(home=tmp_path, blobs_url=f"file://{tmp_path / place}")
    )

    assert check.ok == ok
    assert place in check.sentence


def test_a_secret_of_a_file_of_its_own_that_others_may_read_is_warned_of(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("canary-of-the-file")
    environment = {"EVERTURN_API_KEY_FILE": str(key)}

    key.chmod(0o640)
    [told] = check_settings(read_settings(home=tmp_path), environment)
    key.chmod(0o600)
    after = check_settings(read_settings(home=tmp_path), environment)

    assert told.sentence == f"Other users may read {key}, which EVERTURN_API_KEY_FILE names."
    assert (told.ok, told.mend) == (True, f"chmod 600 {key}")
    assert after == []
