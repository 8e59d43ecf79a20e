"""What a session begins with, as a request asks for it: each part is checked."""

from pathlib import Path

from everturn.errors import UsageError
from everturn.hosts import Reach, literal
from everturn.inputs import checked_id
from everturn.memory import USER
from everturn.session import SessionKey
from everturn.views import NewSession
from everturn.webhooks import Webhook, host_and_port
from everturn_activities.own_folders import own_path
from everturn_activities.store import SessionSettings
from everturn_workers.doors.parts import Parts, folder


def session_settings(parts: Parts, body: NewSession, key: SessionKey) -> SessionSettings:
    """What a session is created with, each part checked. Reads files."""
    named = body.workspace or parts.settings.workspace
    if named is None:
        raise UsageError(
            "The session names no workspace and the server has none; send 'workspace', or start"
            " the server with EVERTURN_WORKSPACE."
        )
    workspace = folder("workspace", Path(named))
    if workspace.resolve() == parts.settings.home.resolve():
        raise UsageError(
            f"The folder {str(workspace)!r} is the home folder, which is no workspace, though it"
            " has a file everturn.toml too; name another."
        )
    agent = body.agent or parts.settings.agent
    model = body.model or parts.settings.model
    checked = parts.check(workspace, agent, model)
    working_dir = checked.working_dir
    kind = body.folder or checked.folder or parts.settings.folder or "shared"
    if body.working_dir is not None:
        working_dir = folder("working_dir", Path(body.working_dir))
    if body.webhook is not None:
        _check_webhook(body.webhook, parts.settings.webhook_reach, checked.secrets)
    own_dir = own_path(parts.settings.home, key, kind, working_dir)
    return SessionSettings(
        workspace=str(workspace),
        working_dir=str(working_dir),
        agent=agent or "default",
        model=model,
        user=USER if body.user is None else checked_id(body.user, "user"),
        folder=kind,
        own_dir=None if own_dir is None else str(own_dir),
        webhook=body.webhook,
    )


def _check_webhook(webhook: Webhook, reach: Reach, secrets_known: tuple[str, ...]) -> None:
    """Refuse at once what no delivery could come to."""
    host, port = host_and_port(webhook.url)
    why = reach.refused_host(host, port)
    if why is None and (address := literal(host)) is not None:
        why = reach.refused_address(address, port)
    if why is not None:
        raise UsageError(
            f"The webhook's host is not called: {why}; the operator lists those that are in"
            " EVERTURN_WEBHOOK_HOSTS."
        )
    if webhook.secret not in secrets_known:
        raise UsageError(
            f"The workspace names no secret {webhook.secret!r} to sign the webhook with; add it to"
            " [secrets] of its everturn.toml."
        )
