"""Results that are too large for a row are kept as blobs, and no result waits for those."""

import logging
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from s3_servers import BUCKET, S3Server
from stories import Clock, Story

from everturn.errors import RuntimeUnavailable, ToolFailed
from everturn.messages import ToolResult
from everturn.session import SessionKey
from everturn_activities.blobs import digest_of, opened
from everturn_activities.builtin.read_more import read_more
from everturn_activities.store import CompletedTool, SessionSettings
from everturn_activities.store import large_texts as rules
from everturn_activities.store.large_texts import CHARACTERS_MIN, LargeTexts
from everturn_workers.runtime import open_runtime
from everturn_workers.settings import Settings

KEY = SessionKey("default", "s")
LARGE = "ä" * CHARACTERS_MIN


class Away:
    """Blobs nobody can reach; they count who tried."""

    def __init__(self, hangs: threading.Event | None = None) -> None:
        self.asked = 0
        self._hangs = hangs

    def put(self, content: bytes) -> str:
        self.asked += 1
        if self._hangs is not None:
            self._hangs.wait(10)
        raise RuntimeUnavailable("The blobs in s3://b cannot be reached: it answers 500.")

    def get(self, digest: str) -> bytes | None:
        assert self._hangs is not None
        self._hangs.wait(10)
        return None


def ended(*wholes: str | None) -> list[CompletedTool]:
    result = ToolResult(call_id="c", name="t", text="cut")
    return [CompletedTool(index, 0, result, 0.1, whole) for index, whole in enumerate(wholes)]


async def test_only_large_texts_become_blobs(tmp_path: Path):
    large = LargeTexts(opened(tmp_path))
    done = ended("small", LARGE, None, LARGE)
    small, first, none, second = await large.kept(done)

    assert (small, none) == (done[0], done[2])
    assert first.blob == second.blob == digest_of(LARGE.encode())
    assert first.whole is second.whole is None
    assert await large.text(first.blob) == LARGE


async def test_a_place_that_is_away_keeps_no_result_from_being_recorded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    away = Away()
    large = LargeTexts(away)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert await large.kept(ended(LARGE)) == ended(LARGE)

    # It is asked again only after a while.
    assert away.asked == 1
    assert [record.getMessage() for record in caplog.records] == [
        "The blobs in s3://b cannot be reached: it answers 500."
        " Large texts stay in the store meanwhile."
    ]
    monkeypatch.setattr(rules.time, "monotonic", lambda: 1e9)
    await large.kept(ended(LARGE))
    assert away.asked == 2


async def test_a_place_that_hangs_is_not_waited_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rules, "PUT_SECONDS", 0.05)
    monkeypatch.setattr(rules, "GET_SECONDS", 0.05)
    goes_on = threading.Event()
    large = LargeTexts(Away(goes_on))
    try:
        assert await large.kept(ended(LARGE)) == ended(LARGE)
        with pytest.raises(RuntimeUnavailable, match=r"gave no text within 0\.05 s"):
            await large.text("digest")
    finally:
        goes_on.set()
    assert "The blobs took no text within 0.05 s." in caplog.text


async def worked(settings: Settings, whole: str) -> Story:
    """The story of a session whose one call said `whole`."""
    async with open_runtime(settings) as runtime:
        await runtime.store.create_session(KEY, SessionSettings("/workspace", "/workspace"))
        story = Story(runtime.store, runtime.events, Clock(), KEY)
        await story.send()
        turn = await story.begun()
        await story.step(turn, 1, calls=["a"])
        await story.begin_tool(turn)
        await story.end_tool(turn, whole=whole)
    return story


async def read(settings: Settings) -> str | None:
    async with open_runtime(settings) as runtime:
        return await runtime.store.whole_result(KEY, 1, 1, 0)


@pytest.mark.usefixtures("aws_credentials")
async def test_a_large_result_is_in_the_blobs_and_in_no_row(tmp_path: Path, s3: S3Server):
    at_s3 = {"blobs_url": f"s3://{BUCKET}/of/{tmp_path.name}", "blobs_endpoint": s3.endpoint}
    for n, given in enumerate((at_s3, {"blobs_url": f"file://{tmp_path}/blobs"})):
        settings = Settings(home=tmp_path / f"home-{n}", **given)
        await worked(settings, LARGE)
        assert await read(settings) == LARGE
        file = sa.create_engine(settings.store_url)
        with file.connect() as connection:
            count = connection.scalar(
                sa.text("SELECT count(*) FROM blobs WHERE length(body) > 10000")
            )
        file.dispose()
        assert count == 0


async def test_what_was_kept_in_rows_or_blobs_is_found_after_the_setting_changed(tmp_path: Path):
    rows = Settings(home=tmp_path / "rows")
    await worked(rows, LARGE)
    blobs = Settings(home=tmp_path / "rows", blobs_url=f"file://{tmp_path}/blobs")
    assert await read(blobs) == LARGE

    other = Settings(home=tmp_path / "other", blobs_url=f"file://{tmp_path}/blobs")
    await worked(other, LARGE)
    for lacking, why in (
        ({}, "EVERTURN_BLOBS_URL names none"),
        ({"blobs_url": f"file://{tmp_path}/empty"}, "it is not in the blobs"),
    ):
        settings = Settings(home=tmp_path / "other", **lacking)
        with pytest.raises(RuntimeUnavailable, match=why):
            await read(settings)
        async with open_runtime(settings) as runtime:
            services = SimpleNamespace(results=runtime.store)
            context = SimpleNamespace(tenant=KEY.tenant, session=KEY.session, services=services)
            with pytest.raises(ToolFailed, match=r"Result 1\.1\.0 cannot be read now; try again"):
                await read_more.run(result="1.1.0", context=context)
