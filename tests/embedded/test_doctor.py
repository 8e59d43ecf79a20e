"""What `everturn doctor` finds: each lack in one sentence, with what to do, and no secret."""

import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from ups import UpProcess

from everturn_workers.check import Check
from everturn_workers.doctor import checks
from everturn_workers.server import EmbeddedServer
from everturn_workers.settings import read_settings


async def found(name: str, environment: Mapping[str, str] | None = None, **flags: object) -> Check:
    all_of_them = await checks(read_settings(**flags), environment or {})
    return next(check for check in all_of_them if check.name == name)


async def test_a_home_that_is_not_there_yet_is_fine(tmp_path: Path):
    check = await found("home", home=tmp_path / "new")

    assert check.ok
    assert not (tmp_path / "new").exists()


async def test_a_home_that_cannot_be_a_folder_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")

    check = await found("home", home=tmp_path / "file")

    assert not check.ok
    assert str(tmp_path / "file") in check.sentence


async def test_a_temporal_address_where_nobody_answers_is_named(home: Path):
    check = await found("temporal", home=home, temporal_address="127.0.0.1:1")

    assert not check.ok
    assert "127.0.0.1:1" in check.sentence


async def test_a_temporal_address_that_answers_is_fine(home: Path, server: EmbeddedServer):
    assert (await found("temporal", home=home, temporal_address=server.address)).ok


async def test_a_namespace_that_the_server_lacks_is_named(home: Path, server: EmbeddedServer):
    check = await found(
        "temporal", home=home, temporal_address=server.address, temporal_namespace="elsewhere"
    )

    assert not check.ok
    assert "'elsewhere'" in check.sentence


async def test_a_named_binary_that_does_not_serve_is_reported(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("EVERTURN_TEMPORAL_BINARY", "/nowhere/temporal")

    check = await found("temporal", home=home)

    assert not check.ok
    assert "/nowhere/temporal" in check.sentence


async def test_a_store_that_is_not_a_database_is_reported(home: Path):
    (home / "everturn.db").write_text("not a database, whatever its name says" * 100)

    check = await found("store", home=home)

    assert not check.ok
    assert "everturn.db cannot be read" in check.sentence


async def test_a_store_that_cannot_be_reached_is_named_without_its_password(home: Path):
    check = await found(
        "store", home=home, database_url="postgresql://me:canary@127.0.0.1:1/everturn"
    )

    assert not check.ok
    assert "127.0.0.1:1" in check.sentence
    assert "canary" not in repr(check)


async def test_a_missing_key_is_named_by_its_variable(home: Path):
    check = await found("model", home=home, model="anthropic/claude-sonnet-4-5")

    assert not check.ok
    assert "ANTHROPIC_API_KEY" in (check.mend or "")


async def test_a_key_that_is_there_is_not_shown(home: Path):
    check = await found("model", {"OPENAI_API_KEY": "canary"}, home=home, model="openai/gpt-5-mini")

    assert check.ok
    assert "canary" not in repr(check)


async def test_a_model_that_no_provider_serves_is_reported(home: Path):
    check = await found("model", home=home, model="opnai/gpt-5-mini")

    assert not check.ok
    assert "opnai" in check.sentence


async def test_an_endpoint_of_ones_own_needs_no_key(home: Path):
    environment = {"OPENAI_BASE_URL": "http://127.0.0.1:8080/v1"}

    assert (await found("model", environment, home=home, model="openai/local")).ok


async def test_a_key_that_the_workspace_names_is_the_one_that_is_checked(
    home: Path, tmp_path: Path
):
    (tmp_path / "everturn.toml").write_text(
        '[model]\nbase_url = "http://127.0.0.1:1/v1"\napi_key_variable = "MY_KEY"\n'
    )

    without = await found("model", {"OPENAI_API_KEY": "x"}, home=home, workspace=tmp_path)
    with_it = await found("model", {"MY_KEY": "x"}, home=home, workspace=tmp_path)

    assert (without.ok, without.mend) == (False, "Set MY_KEY.")
    assert with_it.ok


async def test_the_model_of_the_workspaces_agent_is_the_one_that_is_checked(
    home: Path, tmp_path: Path
):
    (tmp_path / "everturn.toml").write_text('[model]\nname = "groq/llama-3.3-70b-versatile"\n')

    check = await found("model", home=home, workspace=tmp_path)

    assert "GROQ_API_KEY" in (check.mend or "")


async def test_a_broken_workspace_is_reported_with_its_file(home: Path, tmp_path: Path):
    (tmp_path / "everturn.toml").write_text("[model\n")

    check = await found("workspace", home=home, workspace=tmp_path)

    assert not check.ok
    assert "everturn.toml" in check.sentence


async def test_a_port_that_another_program_holds_is_reported(home: Path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        check = await found("port", home=home, port=port)

    assert not check.ok
    assert str(port) in check.sentence


async def test_a_port_that_our_own_api_holds_is_fine(up: Callable[..., UpProcess], home: Path):
    url = up().ready().api_url

    check = await found("port", home=home)

    assert check.ok
    assert str(url) in check.sentence


async def test_secrets_that_are_missing_or_that_others_may_read_are_named(
    home: Path, tmp_path: Path
):
    named = '[secrets]\nTOKEN = {env = "A_CREDENTIAL"}\nKEY = {file = "key"}\n'
    (tmp_path / "everturn.toml").write_text(named)
    key = tmp_path / "key"
    key.write_text("canary-0123456789")
    key.chmod(0o640)

    missing = await found("secrets", home=home, workspace=tmp_path)
    given = {"A_CREDENTIAL": "canary-9876543210"}
    open_file = await found("secrets", given, home=home, workspace=tmp_path)
    key.chmod(0o600)
    fine = await found("secrets", given, home=home, workspace=tmp_path)

    assert (missing.ok, missing.sentence) == (
        False,
        "Secret TOKEN is missing: set the variable A_CREDENTIAL.",
    )
    assert (open_file.ok, open_file.mend) == (False, f"chmod 600 {key}")
    assert (fine.ok, fine.sentence) == (True, "Secrets that are there: KEY, TOKEN.")
