"""deploy/ names settings, commands and paths that there are, and opens nothing to a network."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from everturn_workers.cli.main import app
from everturn_workers.doors.guard import OPEN_PATHS
from everturn_workers.server import DYNAMIC_CONFIG
from everturn_workers.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: one for name, one in SERVICES.items() if "build" in one}
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
SECRET = re.compile(r"\$\{(\w*(?:PASSWORD|KEY)\w*)([^}]*)\}")


def test_every_setting_that_is_given_is_one():
    given = {name for one in OURS.values() for name in one["environment"]}
    given |= set(re.findall(r"\b(EVERTURN_[A-Z_]+)=", DOCKERFILE))
    known = {f"EVERTURN_{name.upper()}" for name in Settings.model_fields}
    assert {"EVERTURN_DATABASE_URL", "EVERTURN_HOME"} <= given
    assert given <= known


@pytest.mark.parametrize("name", OURS)
def test_every_command_is_one(name: str):
    command, *arguments = OURS[name]["command"]
    group: Any = get_command(app)
    group.commands[command].make_context(command, arguments).close()


def test_the_health_that_is_asked_for_is_served_without_a_key():
    [path] = re.findall(r"EVERTURN_PORT\\\"\]\}(/\w+)'", DOCKERFILE)
    assert path in OPEN_PATHS


def test_ports_are_open_to_this_machine_only_and_two_apis_have_their_own():
    published = {port for one in SERVICES.values() for port in one.get("ports", ())}
    assert published == {"127.0.0.1:7430:7430", "127.0.0.1:7431:7430"}
    assert COMPOSE["networks"]["inside"]["internal"] is True
    assert all(one["networks"] == ["inside"] for one in SERVICES.values() if "build" not in one)


def test_every_secret_is_demanded_and_told_of_in_the_example():
    found = SECRET.findall((DEPLOY / "compose.yaml").read_text())
    assert all(rest.startswith(":?") for _, rest in found), "a secret has a default"
    example = re.findall(r"^(\w+)=(.*)$", (DEPLOY / "example.env").read_text(), re.MULTILINE)
    assert {name for name, _ in example} == {name for name, _ in found}
    assert not any(value for _, value in example)


def test_workers_have_no_key_of_the_api():
    holders = {name for name, one in OURS.items() if "EVERTURN_API_KEY" in one["environment"]}
    assert holders == {"api-1", "api-2"}


def test_everybody_waits_for_what_there_is_and_can_be_waited_for():
    for one in SERVICES.values():
        for name, how in one.get("depends_on", {}).items():
            awaited = SERVICES[name]
            if how["condition"] == "service_healthy":
                assert "test" in awaited["healthcheck"]
            else:
                assert how["condition"] == "service_completed_successfully"
                assert awaited["restart"] == "on-failure"
        for volume in one["volumes"]:
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).exists()
        assert set(one["networks"]) <= set(COMPOSE["networks"])


def test_a_worker_is_given_more_time_to_leave_than_it_promises_to_its_calls():
    for name in ("worker", "tools"):
        promised = int(OURS[name]["environment"]["EVERTURN_DRAIN_SECONDS"])
        assert int(OURS[name]["stop_grace_period"].removesuffix("s")) >= promised + 10


def test_images_are_pinned_and_temporal_is_of_one_version():
    others = [one["image"] for one in SERVICES.values() if "build" not in one]
    assert all(re.search(r":\d+\.\d+[\w.-]*$", image) for image in others)
    versions = {image.split(":")[1] for image in others if image.startswith("temporalio/")}
    assert len(versions) == 1
    assert re.search(r"^ARG PYTHON=3\.\d+\.\d+-slim", DOCKERFILE, re.MULTILINE)


def test_temporal_is_tuned_as_the_embedded_server():
    tuned = yaml.safe_load((DEPLOY / "temporal" / "dynamic.yaml").read_text())
    given = {name: only["value"] for name, [only] in tuned.items()}
    assert given == {
        name: yaml.safe_load(value) for name, value in (one.split("=", 1) for one in DYNAMIC_CONFIG)
    }


def test_ours_run_as_nobody_on_a_disk_that_they_cannot_change():
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == ["10001:10001"]
    for one in OURS.values():
        assert one["read_only"] is True
        assert one["cap_drop"] == ["ALL"]
        assert "privileged" not in one
        assert "user" not in one


def test_the_image_is_built_of_all_packages_and_of_nothing_that_is_left_out():
    copied = set(re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE))
    copied = {name for line in copied for name in line.split()}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = built["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {path.split("/")[0] for path in packages} <= copied
    assert {built["project"]["readme"], *built["project"]["license-files"]} <= copied


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*/*.sh")), ids=lambda path: path.name)
def test_every_script_can_be_read_by_a_shell(script: Path):
    subprocess.run(["/bin/sh", "-n", script], check=True)
    assert script.stat().st_mode & 0o111


def test_what_the_readme_has_people_type_are_commands():
    text = (DEPLOY / "README.md").read_text()
    group: Any = get_command(app)
    typed = re.findall(r"^(?:\$ )?(?:docker .*)?everturn (?!--detach)(\w.*)$", text, re.MULTILINE)
    assert typed
    for line in typed:
        command, *_ = shlex.split(line, comments=True)
        assert command in group.commands, line
