"""What a manifest says of a prompt, and how it is kept."""

from everturn.context.manifest import Manifest, Written, digest_of

MANIFEST = Manifest((Written("a", digest_of("A"), 3), Written("b", digest_of("B"), 4)), 2, 9)


def test_a_manifest_that_was_stored_is_the_same() -> None:
    again = Manifest.read(MANIFEST.body)
    assert again == MANIFEST
    assert again.digest == MANIFEST.digest


def test_a_prompt_takes_its_layers_and_what_joins_them() -> None:
    assert MANIFEST.tokens == 9


def test_a_manifest_holds_nothing_of_what_is_said() -> None:
    secret = Manifest((Written("a", digest_of("the secret"), 3),))
    assert "secret" not in secret.body
