"""What settings let be known to whom, and which variables are none."""

from collections.abc import Mapping
from pathlib import Path

from everturn.errors import UsageError
from everturn_workers.check import Check
from everturn_workers.doors.guard import demand_key, is_loopback
from everturn_workers.settings import Settings, secret_names, settings_file, unknown_variables
from everturn_workers.settings_secrets import file_variable

KEY_CHARACTERS_MIN = 16


def check_settings(settings: Settings, environment: Mapping[str, str]) -> list[Check]:
    """Nothing is said of what is fine, but that there is a key where one is needed."""
    return [
        *(Check("settings", True, told, _SEE) for told in unknown_variables(environment)),
        *_open_file(settings),
        *_open_secrets(environment),
        *_key(settings),
    ]


_SEE = "`everturn config show` tells what is in force."


def _key(settings: Settings) -> list[Check]:
    try:
        demand_key(settings)
    except UsageError as error:
        return [Check("api_key", False, str(error), "One is made by: openssl rand -hex 32")]
    if settings.api_key is None:
        return []
    if len(settings.api_key.get_secret_value()) < KEY_CHARACTERS_MIN:
        sentence = f"The API key has fewer than {KEY_CHARACTERS_MIN} characters."
        return [Check("api_key", True, sentence, "A longer one is made by: openssl rand -hex 32")]
    where = "this machine alone" if is_loopback(settings.host) else settings.host
    return [Check("api_key", True, f"Clients need the API key; the API listens on {where}.")]


def _open_file(settings: Settings) -> list[Check]:
    """A file that has a secret and that other users may read."""
    file = settings_file(settings)
    held = [name for name in secret_names() if name in file.values]
    if not held or not file.path.stat().st_mode & 0o077:
        return []
    # In the home folder nobody else gets at it.
    if settings.config is None and not settings.home.stat().st_mode & 0o077:
        return []
    sentence = f"Other users may read {file.path}, which sets {', '.join(held)}."
    return [Check("settings", False, sentence, f"chmod 600 {file.path}")]


def _open_secrets(environment: Mapping[str, str]) -> list[Check]:
    """Secrets' files that other users may read: warnings, as containers mount them so."""
    checks = []
    for variable in map(file_variable, secret_names()):
        path = Path(environment.get(variable, ""))
        if path.is_file() and path.stat().st_mode & 0o077:
            sentence = f"Other users may read {path}, which {variable} names."
            checks.append(Check("settings", True, sentence, f"chmod 600 {path}"))
    return checks
