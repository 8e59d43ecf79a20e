"""Contents come back by their digests as they were, from a folder and from S3."""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from s3_servers import BUCKET, S3Server, in_time, wrong_server

from everturn.errors import RuntimeUnavailable
from everturn_activities.blobs import Blobs, Bucket, opened, place_of
from everturn_activities.blobs import s3 as s3_module

CONTENT = b"what a tool has said\n" * 100
DIGEST = hashlib.sha256(CONTENT).hexdigest()

Place = tuple[Blobs, Callable[[str, bytes], None]]
"""Blobs, and a way to change what is there behind their back."""


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        folder = tmp_path / "not" / "there yet"

        def change(digest: str, content: bytes) -> None:
            (folder / digest[:2] / digest).write_bytes(content)

        return opened(folder), change
    request.getfixturevalue("aws_credentials")
    server: S3Server = request.getfixturevalue("s3")
    prefix = f"of/{tmp_path.name}"

    def put(digest: str, content: bytes) -> None:
        client = server.client()
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{digest[:2]}/{digest}", Body=content)
        client.close()

    return opened(Bucket(BUCKET, prefix, server.endpoint)), put


def test_a_content_comes_back_by_its_digest(place: Place):
    blobs, _ = place
    assert blobs.get(DIGEST) is None
    assert blobs.put(CONTENT) == DIGEST
    assert blobs.put(b"") == hashlib.sha256(b"").hexdigest()
    assert blobs.put(CONTENT) == DIGEST
    assert blobs.get(DIGEST) == CONTENT
    assert blobs.get(hashlib.sha256(b"").hexdigest()) == b""


def test_a_content_that_was_deleted_is_gone_and_may_be_kept_again(place: Place):
    blobs, _ = place
    blobs.put(CONTENT)
    for _ in range(2):
        blobs.delete(DIGEST)
        assert blobs.get(DIGEST) is None
    assert blobs.get(blobs.put(CONTENT)) == CONTENT


@pytest.mark.parametrize("found", [b"", CONTENT[:-1], CONTENT.replace(b"w", b"W", 1)])
def test_a_content_that_is_not_what_its_digest_says_is_none(place: Place, found: bytes):
    blobs, change = place
    blobs.put(CONTENT)
    change(DIGEST, found)
    assert blobs.get(DIGEST) is None


def test_a_content_that_was_cut_off_is_whole_again_once_it_is_kept_again(place: Place):
    blobs, change = place
    blobs.put(CONTENT)
    change(DIGEST, CONTENT[:7])
    blobs.put(CONTENT)
    assert blobs.get(DIGEST) == CONTENT


WRONG = {
    "403 InvalidAccessKeyId": "it answers 403 InvalidAccessKeyId",
    "404 NoSuchBucket": "it answers 404 NoSuchBucket",
    "500 InternalError": "it answers 500 InternalError",
    "503": "it answers 503",
    "500 <b>bold</b>": "the client says TypeError",
    "500 no code": "it answers 500",
    "nonsense": "nobody answers there in time",
    "slow": "nobody answers there in time",
}


@pytest.mark.usefixtures("aws_credentials")
@pytest.mark.parametrize("how", WRONG)
def test_a_server_that_does_wrong_is_away_and_is_asked_once(
    how: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(s3_module, "ANSWER_SECONDS", 0.2)
    with wrong_server(how) as (endpoint, asked):
        blobs = opened(Bucket(BUCKET, "", endpoint))
        for ask in (lambda: blobs.put(CONTENT), lambda: blobs.get(DIGEST)):
            began = time.monotonic()
            with pytest.raises(RuntimeUnavailable) as told:
                ask()
            # boto3 would wait a minute by itself.
            assert in_time(began, 30)
            assert str(told.value) == (
                f"The blobs in s3://{BUCKET} at {endpoint} cannot be reached: {WRONG[how]}."
            )
            assert told.value.__cause__ is None
            assert told.value.__suppress_context__
        assert asked == ["PUT", "GET"]


@pytest.mark.usefixtures("aws_credentials")
def test_a_reply_that_is_cut_off_is_no_content():
    with wrong_server("cut") as (endpoint, _), pytest.raises(RuntimeUnavailable):
        opened(Bucket(BUCKET, "", endpoint)).get(DIGEST)


def test_a_server_that_is_gone_and_one_without_credentials_are_told(
    aws_credentials: None, monkeypatch: pytest.MonkeyPatch
):
    with wrong_server("500") as (endpoint, _):
        pass
    with pytest.raises(RuntimeUnavailable, match="nobody answers there"):
        opened(Bucket(BUCKET, "", endpoint)).put(CONTENT)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(RuntimeUnavailable, match="the client says NoCredentialsError"):
        opened(Bucket(BUCKET, "", endpoint)).put(CONTENT)


def test_a_folder_that_cannot_be_made_is_away(tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    blobs = opened(tmp_path / "file" / "below")
    for ask in (lambda: blobs.put(CONTENT), lambda: blobs.get(DIGEST)):
        with pytest.raises(RuntimeUnavailable, match="cannot be reached: Not a directory"):
            ask()


def test_a_content_and_its_names_are_on_the_disk_before_anybody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        synced.append("content" if (tmp_path / DIGEST[:2] / DIGEST).exists() else "part")
        synced[-1] = path if os.path.isdir(path) else synced[-1]

    monkeypatch.setattr(os, "fsync", sync)
    opened(tmp_path).put(CONTENT)
    assert synced == ["part", str(tmp_path / DIGEST[:2]), str(tmp_path)]
    synced.clear()
    # Another process may have been killed before it was that far.
    opened(tmp_path).put(CONTENT)
    assert synced == [str(tmp_path / DIGEST[:2]), str(tmp_path)]


def test_where_blobs_go_is_read_from_a_url():
    assert place_of("file:///srv/my%20blobs") == Path("/srv/my blobs")
    assert place_of("s3://bucket") == Bucket("bucket", "")
    assert place_of("s3://bucket/a/b/", "http://minio:9000") == Bucket(
        "bucket", "a/b", "http://minio:9000"
    )


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("/srv/blobs", "no place for blobs"),
        ("http://bucket", "no place for blobs"),
        ("file://srv/blobs", "three slashes"),
        ("file:blobs", "three slashes"),
        ("s3://", "a bucket's name"),
        ("s3://Bucket", "a bucket's name"),
        ("s3://bucket:80", "a bucket's name"),
        ("s3://key:hunter2@bucket/x", "credentials"),
        ("s3://bucket/x?key=hunter2", "credentials"),
        ("s3://[hunter2", "no URL"),
    ],
)
def test_a_url_that_is_no_place_for_blobs_is_refused_and_not_repeated(url: str, why: str):
    with pytest.raises(ValueError, match=why) as told:
        place_of(url)
    assert "hunter2" not in str(told.value)
