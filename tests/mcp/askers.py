"""What a person types, sent as the API does."""

from harness import Bench

from everturn.messages import UserMessage, user_text
from everturn.session import Mode, SessionKey
from everturn_activities.store import Inbound
from everturn_workers.invocations import Invocations


async def typed(made: Bench, key: SessionKey, text: str, mode: Mode = "queue") -> None:
    asked = await Invocations(made.settings.home, made.runtime.store).of(key, None, text)
    message = user_text(text) if asked is None else UserMessage(parts=asked)
    made.sent += 1
    await made.front.accept(key, Inbound(f"m{made.sent}", "message", message, mode))


async def users(made: Bench, key: SessionKey) -> list[UserMessage]:
    return [one for one in await made.transcript(key) if isinstance(one, UserMessage)]
