"""Secrets are read where settings say that they are, and what is missing is told in a sentence."""

import os
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

from everturn.errors import SecretMissing, WorkspaceError
from everturn.secrets import SecretSource
from everturn.session import SessionKey
from everturn_activities.builtin.inside import Services
from everturn_activities.vault import FILE_BYTES_MAX, Vault
from everturn_activities.workspace import load
from everturn_activities.workspaces import Workspaces

CANARY = "canary-0123456789"


class InMemory(KeyringBackend):
    """A keyring of the test's own."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.kept = {("shop", "me"): CANARY}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError


class Locked(InMemory):
    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked(CANARY)


@pytest.fixture
def in_keyring() -> Iterator[None]:
    before = keyring.get_keyring()
    keyring.set_keyring(InMemory())
    yield
    keyring.set_keyring(before)


def test_a_secret_is_read_from_a_variable_a_file_and_the_keyring(
    tmp_path: Path, in_keyring
) -> None:
    (tmp_path / "key").write_text(f"{CANARY}\n")
    for source in (
        SecretSource(env="SHOP"),
        SecretSource(file="key"),
        SecretSource(file=str(tmp_path / "key")),
        SecretSource(keyring="shop/me"),
    ):
        vault = Vault({"SHOP": CANARY})
        assert vault.value(tmp_path, {"TOKEN": source}, "TOKEN") == CANARY
        assert vault.scrubber.scrubbed(f"<{CANARY}>") == "<[secret TOKEN]>"


def test_a_file_is_read_again_where_it_has_changed_and_both_values_are_known(tmp_path: Path):
    vault, secrets = Vault({}), {"TOKEN": SecretSource(file="key")}
    (tmp_path / "key").write_text(CANARY)
    first = vault.value(tmp_path, secrets, "TOKEN")
    (tmp_path / "new").write_text("another-0123456789")
    os.replace(tmp_path / "new", tmp_path / "key")
    vault.know(tmp_path, secrets)
    assert vault.value(tmp_path, secrets, "TOKEN") == "another-0123456789"
    assert vault.scrubber.scrubbed(f"{first} another-0123456789") == (
        "[secret TOKEN] [secret TOKEN]"
    )


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"env": "NOWHERE"}, "Secret TOKEN is missing: set the variable NOWHERE."),
        ({"file": "nowhere"}, "The file 'nowhere' of secret TOKEN cannot be read: No such file"),
        ({"file": "~nobody-here/key"}, "cannot be read: Could not determine home directory"),
        ({"file": "a\0b"}, "cannot be read: embedded null byte"),
        ({"file": "."}, "cannot be read: Is a directory"),
        ({"file": "binary"}, "The file binary of secret TOKEN is not valid UTF-8"),
        ({"file": "long"}, "The file long of secret TOKEN is longer than 65,536 bytes"),
        ({"env": "SHORT"}, "Secret TOKEN has fewer than 8 characters"),
        ({"keyring": "shop/nobody"}, "the keyring holds nothing for nobody of shop"),
    ],
)
def test_what_cannot_be_had_is_told_without_its_value(
    tmp_path: Path, in_keyring, source, told
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe")
    (tmp_path / "long").write_text("x" * (FILE_BYTES_MAX + 1))
    secrets = {"TOKEN": SecretSource(**source)}
    with pytest.raises(SecretMissing) as raised:
        Vault({"SHORT": "1234567"}).value(tmp_path, secrets, "TOKEN")
    assert told in str(raised.value)
    assert "1234567" not in str(raised.value)


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SecretMissing):
        Vault({}).value(tmp_path, {"TOKEN": SecretSource(file="pipe")}, "TOKEN")


def test_a_keyring_that_cannot_be_used_is_told_by_its_kind(tmp_path: Path, in_keyring) -> None:
    keyring.set_keyring(Locked())
    with pytest.raises(SecretMissing, match=r"cannot be used \(KeyringLocked\)") as raised:
        Vault({}).value(tmp_path, {"TOKEN": SecretSource(keyring="shop/me")}, "TOKEN")
    assert CANARY not in str(raised.value)


def test_a_keyring_is_asked_at_use_only(tmp_path: Path, in_keyring) -> None:
    vault, secrets = Vault({}), {"TOKEN": SecretSource(keyring="shop/me")}
    vault.know(tmp_path, secrets)
    assert len(vault.scrubber) == 0
    vault.value(tmp_path, secrets, "TOKEN")
    assert len(vault.scrubber) == 1


def test_the_keys_of_providers_and_passwords_of_addresses_are_known_from_the_start() -> None:
    vault = Vault(
        {
            "OPENAI_API_KEY": CANARY,
            "EVERTURN_REDIS_URL": "redis://me:pass-0123456789@host/0",
            "EVENTS_URL": "https://host/?limit=1000000000&access_token=pa%2Dss-9876543210",
            "A_URL": "http://[broken",
            "EMPTY_KEY": "",
        }
    )
    assert vault.scrubber.scrubbed(f"{CANARY} pass-0123456789 pa%2Dss-9876543210") == (
        "[secret OPENAI_API_KEY] [secret EVERTURN_REDIS_URL] [secret EVENTS_URL]"
    )
    assert vault.scrubber.scrubbed("pa-ss-9876543210 1000000000") == (
        "[secret EVENTS_URL] 1000000000"
    )
    assert vault.keys() == (CANARY,)


def test_a_key_of_any_name_is_known_once_a_provider_is_called_with_it() -> None:
    vault = Vault({"MINE": CANARY})
    assert vault.scrubber.scrubbed(CANARY) == CANARY
    assert vault.variable("MINE") == CANARY
    assert vault.variable("NOBODYS") is None
    assert vault.scrubber.scrubbed(CANARY) == "[secret MINE]"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f'TOKEN = "{CANARY}"', "line 2: a secret is a table that says where it is"),
        ('TOKEN = {env = "A", file = "b"}', "line 2: a secret has one of env, file, keyring"),
        ("TOKEN = {}", "line 2: a secret has one of env, file, keyring"),
        ('TOKEN = {evn = "A"}', "unknown key 'secrets.TOKEN.evn' (did you mean 'env'?)"),
        ('token = {env = "A"}', "secrets.token"),
        ('TOKEN = {keyring = "shop"}', "secrets.TOKEN.keyring"),
    ],
)
def test_wrong_settings_are_told_in_a_sentence_that_never_shows_a_value(
    tmp_path: Path, line: str, told: str
) -> None:
    (tmp_path / "everturn.toml").write_text(f"[secrets]\n{line}\n")
    with pytest.raises(WorkspaceError) as raised:
        load(tmp_path)
    assert told in str(raised.value)
    assert CANARY not in str(raised.value)


def test_an_agent_whose_commands_want_a_secret_that_nobody_named_is_told_of_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "everturn.toml").write_text('[secrets]\nTOKEN = {env = "A"}\n')
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "shop.md").write_text("---\ncommand_secrets: [TOKN]\n---\nSell.\n")
    with pytest.raises(WorkspaceError, match=r"names secret 'TOKN' \(did you mean 'TOKEN'\?\)"):
        load(tmp_path).own_spec("shop")


def test_a_process_that_is_new_to_a_turn_knows_its_secrets_before_a_tool_runs(tmp_path: Path):
    (tmp_path / "everturn.toml").write_text('[secrets]\nTOKEN = {env = "SHOP"}\n')
    vault = Vault({"SHOP": CANARY})
    context = Workspaces(services=Services(vault=vault)).context(
        load(tmp_path).spec(), SessionKey("t", "s"), 1, 1, 0, 1
    )
    assert context.scrubber.scrubbed(CANARY) == "[secret TOKEN]"
    assert CANARY not in repr(context)
