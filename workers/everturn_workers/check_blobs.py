"""Whether blobs can be kept where they are to be: one is, and is read and deleted again."""

import os
import secrets
from pathlib import Path

from everturn.errors import RuntimeUnavailable, UsageError
from everturn_activities import blobs
from everturn_activities.blobs import Blobs
from everturn_activities.threads import in_thread
from everturn_workers.check import Check, in_time
from everturn_workers.home import demand_no_homes_own
from everturn_workers.settings import Settings

_MEND_FOLDER = "Set EVERTURN_BLOBS_URL to a folder of yours."
_MEND_BUCKET = "Mend EVERTURN_BLOBS_URL, EVERTURN_BLOBS_ENDPOINT or AWS's credentials."


async def check_blobs(settings: Settings) -> list[Check]:
    if settings.blobs_url is None:
        return []
    place = blobs.place_of(settings.blobs_url, settings.blobs_endpoint)
    late = Check(
        "blobs",
        False,
        f"The blobs in {place} do not answer in time: large results stay in the store meanwhile.",
        "Mend EVERTURN_BLOBS_URL or EVERTURN_BLOBS_ENDPOINT, or the way there.",
    )
    at = f" at {place.endpoint}" if isinstance(place, blobs.Bucket) and place.endpoint else ""
    told = f"The blobs in {place}{at}"
    if isinstance(place, Path):
        return await in_time(in_thread(_folder, place), late)
    return await in_time(in_thread(_tried, place, told, _MEND_BUCKET), late)


def _folder(place: Path) -> list[Check]:
    try:
        demand_no_homes_own(place)
    except UsageError as error:
        mend = "Set EVERTURN_BLOBS_URL to a folder of its own."
        return [Check("blobs", False, str(error), mend)]
    try:
        there = next(path for path in (place, *place.parents) if os.path.lexists(path))
        writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        sentence = f"The folder of blobs {place} cannot be written to."
        return [Check("blobs", False, sentence, _MEND_FOLDER)]
    if there != place:
        sentence = f"The folder of blobs {place} will be made when the first is kept."
        return [Check("blobs", True, sentence)]
    return _tried(place, f"The blobs in {place}", _MEND_FOLDER)


def _tried(place: Path | blobs.Bucket, told: str, mend: str) -> list[Check]:
    # Nobody else keeps the same, and would miss it.
    probe = f"everturn doctor was here: {secrets.token_hex(16)}".encode()
    kept = blobs.opened(place)
    try:
        digest = kept.put(probe)
    except RuntimeUnavailable as error:
        return [Check("blobs", False, str(error), mend)]
    wrong = _wrong(kept, digest, probe, told)
    try:
        kept.delete(digest)
    except RuntimeUnavailable as error:
        if wrong is not None:
            return [Check("blobs", False, wrong, mend)]
        sentence = f"{told} can be written and read, and not deleted. {error}"
        return [Check("blobs", True, sentence, f"Allow it; a probe of {len(probe)} bytes stays.")]
    if wrong is not None:
        return [Check("blobs", False, wrong, mend)]
    return [Check("blobs", True, f"{told} can be written, read and deleted.")]


def _wrong(kept: Blobs, digest: str, probe: bytes, told: str) -> str | None:
    try:
        same = kept.get(digest) == probe
    except RuntimeUnavailable as error:
        return str(error)
    return None if same else f"{told} do not give back what was just kept there."
