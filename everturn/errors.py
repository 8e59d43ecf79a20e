"""Every exception of ours, drawn as a tree.

    EverturnError                    what a person or a program can read and mend
      UsageError                     the caller asked for something that cannot be
        WorkspaceError               a workspace, its settings, agents or tools
        UnknownSession               no session of that name
        UnknownSchedule              no schedule of that name
        UnknownTask                  no task of that id
        UnknownWebhook               nothing that was to be sent has that id
        UnknownModel                 no provider serves a model of that name
        UnknownAgent                 the workspace has no agent of that name
        SecretMissing                a secret that settings name cannot be had
        IdempotencyConflict          one id was sent with two contents
        TooLarge                     an input above its limit
      RuntimeUnavailable             a server that we need cannot be reached or started
        StoreAway                    the store's database does not answer for now
      ModelError                     the model's side failed
        ModelRefused                 nobody can repair it by waiting: key, request, policy
        ContextOverflow              the request is longer than the model's window
        ModelUnavailable             time can repair it: limits, overload, network
          ModelRateLimited           the provider's limit is used up for now
          ModelUnreachable           nothing answers at the endpoint's address
      ToolFailed                     a tool says why it could not, in words for the model
        NotThere                     nothing is at the path that a tool was given
      ServerFailed                   an MCP server cannot be launched, or says no
        ServerLost                   it has ended, or cannot be reached any more
        ServerForgot                 it knows nothing of its connection; nothing was run
        ServerAlreadyLaunched        it runs, and goes on running
      StaleHost                      another run hosts this session now
      Fenced                         a newer attempt of this call has begun
      OwnerAlive                     the call is under way in another live process
      TurnCancelled                  the turn was cancelled while one of its calls ran

A message names the thing, the limit and the mend, in one sentence.
"""


class EverturnError(Exception):
    """The root of the tree. `str(error)` is one sentence fit for a person."""


class UsageError(EverturnError):
    pass


class WorkspaceError(UsageError):
    pass


class UnknownSession(UsageError):
    pass


class UnknownSchedule(UsageError):
    pass


class UnknownTask(UsageError):
    pass


class UnknownWebhook(UsageError):
    pass


class UnknownModel(UsageError):
    pass


class UnknownAgent(UsageError):
    pass


class SecretMissing(UsageError):
    pass


class IdempotencyConflict(UsageError):
    pass


class TooLarge(UsageError):
    pass


class RuntimeUnavailable(EverturnError):
    pass


class StoreAway(RuntimeUnavailable):
    pass


class ModelError(EverturnError):
    pass


class ModelRefused(ModelError):
    pass


class ContextOverflow(ModelRefused):
    pass


OVERFLOW = ContextOverflow.__name__
"""By this name a workflow knows that a conversation must become shorter."""


FAULT = "Fault"
"""By this name a workflow knows of an activity that fails again and again by a fault of ours."""


UNUSABLE_FOLDER = "The session's own folder cannot be made."
"""What a workflow may know of that; the outcome's reason is the whole sentence."""


class ModelUnavailable(ModelError):
    """Carries how long the provider asked us to wait, in seconds, where it said so."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class ToolFailed(EverturnError):
    """Raised by a tool: the model is told the message as it stands."""


class NotThere(ToolFailed):
    """There is nothing at the path that a tool was given."""


class ServerFailed(EverturnError):
    pass


class ServerLost(ServerFailed):
    def __init__(self, how: str) -> None:
        super().__init__(f"The server {how}.")
        self.how = how


class ServerForgot(ServerFailed):
    pass


class ServerAlreadyLaunched(ServerFailed):
    pass


class ModelRateLimited(ModelUnavailable):
    pass


class ModelUnreachable(ModelUnavailable):
    pass


class ModelStalled(ModelUnavailable):
    pass


class StaleHost(EverturnError):
    pass


class Fenced(EverturnError):
    pass


class OwnerAlive(EverturnError):
    pass


class TurnCancelled(EverturnError):
    pass
