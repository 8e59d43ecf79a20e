"""Secrets of the system's keyring."""

from everturn.errors import SecretMissing


def password(name: str, service: str, user: str) -> str:
    """What the keyring holds for `user` of `service`. Raises SecretMissing."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise SecretMissing(
            f"Secret {name} is in the keyring, which needs a package: pip install"
            " 'everturn[keyring]'."
        ) from None
    try:
        found = keyring.get_password(service, user)
    except KeyringError as error:
        raise SecretMissing(
            f"The keyring of secret {name} cannot be used ({type(error).__name__}); unlock it, or"
            " name a variable or a file."
        ) from None
    if found is None:
        raise SecretMissing(
            f"Secret {name} is missing: the keyring holds nothing for {user} of {service}; add it"
            f" by: keyring set {service} {user}"
        )
    return found
