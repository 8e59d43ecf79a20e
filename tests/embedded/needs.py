"""What a test needs of the machine: missing, it is skipped loudly, or fails where CI runs it."""

import os

import pytest


def need(present: object, what: str) -> None:
    """Skip the test where `present` is false; with CI set to true it fails instead."""
    if present:
        return
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"CI must not skip this test: {what}")
    pytest.skip(f"NOT TESTED: {what}")
