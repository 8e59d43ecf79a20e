"""Where blobs go, as an operator sets it: no password in it, and none repeated."""

import threading

import pytest

from everturn.errors import UsageError
from everturn_workers import runtime
from everturn_workers.check_blobs import check_blobs
from everturn_workers.home import prepare
from everturn_workers.runtime import open_runtime
from everturn_workers.settings import read_settings


def test_the_place_of_blobs_comes_from_the_file_and_the_environment(tmp_path, monkeypatch):
    (tmp_path / "everturn.toml").write_text('blobs_url = "file:///srv/blobs"\n')
    assert read_settings(home=tmp_path).blobs_url == "file:///srv/blobs"
    monkeypatch.setenv("EVERTURN_BLOBS_URL", "s3://bucket/everturn")
    monkeypatch.setenv("EVERTURN_BLOBS_ENDPOINT", "http://127.0.0.1:9000")
    settings = read_settings(home=tmp_path)
    assert settings.blobs_url == "s3://bucket/everturn"
    assert settings.blobs_endpoint == "http://127.0.0.1:9000"


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("blobs_url", "s3://key:hunter2@bucket", "credentials and options do not belong into it"),
        ("blobs_url", "ftp://hunter2", "this is no place for blobs; write s3://BUCKET/PREFIX"),
        ("blobs_endpoint", "https://key:hunter2@host", "credentials and options do not belong"),
        ("blobs_endpoint", "https://host?hunter2", "credentials and options do not belong"),
        ("blobs_endpoint", "https://host/hunter2", "an endpoint is http://HOST:PORT"),
        ("blobs_endpoint", "hunter2:9000", "an endpoint is http://HOST:PORT"),
        ("blobs_endpoint", "http://:9000", "an endpoint is http://HOST:PORT"),
        ("blobs_endpoint", "http://host:0", "an endpoint is http://HOST:PORT"),
        ("blobs_endpoint", "http://host:hunter2", "an endpoint is http://HOST:PORT"),
    ],
)
def test_a_wrong_place_is_told_in_one_sentence_without_its_secret(
    tmp_path, monkeypatch, name, given, why
):
    monkeypatch.setenv(f"EVERTURN_{name.upper()}", given)
    with pytest.raises(UsageError) as told:
        read_settings(home=tmp_path)
    assert str(told.value).startswith(f"Setting '{name}' is wrong: Value error, {why}")
    assert "hunter2" not in str(told.value)
    assert "\n" not in str(told.value)


async def test_texts_of_the_store_are_never_kept_where_a_home_removes_what_it_does_not_know(
    tmp_path,
):
    other = prepare(tmp_path / "other")
    (tmp_path / "linked").symlink_to(other / "blobs")
    for place in (tmp_path / "home" / "blobs", other / "blobs", tmp_path / "linked"):
        settings = read_settings(home=prepare(tmp_path / "home"), blobs_url=place.as_uri())
        with pytest.raises(UsageError, match=r"names .* where the home .* name another folder\.$"):
            async with open_runtime(settings):
                pass
        [found] = await check_blobs(settings)
        assert not found.ok

    apart = tmp_path / "texts" / "blobs"
    apart.mkdir(parents=True)
    async with open_runtime(read_settings(home=tmp_path / "home", blobs_url=apart.as_uri())):
        pass


async def test_a_folder_that_is_away_keeps_no_process_from_starting(tmp_path, monkeypatch):
    (tmp_path / "blobs").symlink_to(tmp_path / "blobs")
    url = (tmp_path / "blobs").as_uri()
    settings = read_settings(home=prepare(tmp_path / "home"), blobs_url=url)
    async with open_runtime(settings):
        pass
    [found] = await check_blobs(settings)
    assert not found.ok

    answers = threading.Event()
    monkeypatch.setattr(runtime, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(runtime, "demand_no_homes_own", lambda place: answers.wait())
    async with open_runtime(settings):
        pass
    answers.set()
