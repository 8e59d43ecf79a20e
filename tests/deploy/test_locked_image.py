"""What the image is made of is named by version and hash, and is what pyproject.toml asks for."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
ASKED = {
    "requirements.lock": PROJECT["project"]["dependencies"],
    "build.lock": PROJECT["build-system"]["requires"],
}
PINNED = re.compile(r"^(\S+)==(\S+) \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def locked(name: str) -> dict[str, str]:
    """Versions by names. Each line must be one of a version, or one of its hashes."""
    found: dict[str, str] = {}
    for line in (ROOT / "deploy" / name).read_text().splitlines():
        if line.startswith("#"):
            continue
        pinned = PINNED.match(line)
        assert pinned or HASH.match(line), line
        if pinned:
            found[canonicalize_name(pinned[1])] = pinned[2]
    return found


@pytest.mark.parametrize("name", ASKED)
def test_the_image_is_made_of_what_the_project_asks_for(name: str):
    """Where this fails, run `make lock`."""
    versions = locked(name)
    for text in ASKED[name]:
        asked = Requirement(text)
        version = versions.get(canonicalize_name(asked.name))
        assert version is not None, f"{asked.name} is not in deploy/{name}: run make lock"
        assert asked.specifier.contains(version), f"{text}: deploy/{name} has {version}"


def test_nothing_without_a_hash_gets_into_the_image():
    image = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    commands = [part for line in image.splitlines() for part in line.split("&&") if "pip" in part]
    installs = [part for part in commands if " install " in part]
    assert len(installs) == 3
    for part in installs:
        assert "--require-hashes --only-binary :all:" in part or "--no-deps --no-index" in part
    [wheel] = [part for part in commands if "pip wheel" in part]
    assert "--no-deps --no-build-isolation" in wheel


def test_the_locks_are_for_the_images_python_and_of_the_same_builder():
    [python] = re.findall(r"^ARG PYTHON=([\d.]+)-", (ROOT / "deploy/Dockerfile").read_text(), re.M)
    assert f"--python-version {python} " in (ROOT / "Makefile").read_text()
    assert PROJECT["dependency-groups"]["image"] == PROJECT["build-system"]["requires"]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert all(f"!deploy/{name}" in ignored for name in ASKED)
