"""Settings without those of whoever runs the tests."""

import os

import pytest


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("EVERTURN_"):
            monkeypatch.delenv(name)
