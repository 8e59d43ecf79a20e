"""Asking a person in the midst of a call, which waits in its slot for the answer."""

from everturn.session import SessionKey
from everturn_activities.store import Answer, AskPerson, Store
from everturn_activities.wakeups import Exchange, changed


class Questions:
    def __init__(self, store: Store, wakeups: Exchange) -> None:
        self._store = store
        self._wakeups = wakeups

    async def ask(self, key: SessionKey, asked: AskPerson) -> Answer:
        """What a person says, once somebody does, or the question is over.

        Asked again after a kill it is the same question, whose answer may be there.
        """
        approval = await self._store.ask_person(key, asked)
        with self._wakeups.waiting(key) as event:
            while (answer := await self._store.answer_of(key, approval)).state == "open":
                await changed(event)
        return answer
