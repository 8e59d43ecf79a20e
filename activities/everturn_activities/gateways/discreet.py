"""A gateway that sends no secret, and tells none."""

import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing
from operator import is_
from typing import Any, TypeVar

from pydantic import BaseModel

from everturn.context.compose import Context
from everturn.errors import ModelError
from everturn.scrubbing import Scrubber
from everturn_activities.bounded import Bounded
from everturn_activities.gateways import Delta, ModelGateway, Reply

Model = TypeVar("Model", bound=BaseModel)

SYSTEMS_KEPT = 64


class Discreet:
    """`gateway`, with known values taken out of requests and out of the texts of errors."""

    def __init__(self, gateway: ModelGateway, clean: "CleanRequests") -> None:
        self._gateway = gateway
        self._clean = clean

    async def stream(self, context: Context) -> AsyncGenerator[Delta | Reply]:
        try:
            async with aclosing(self._gateway.stream(self._clean.of(context))) as items:
                async for item in items:
                    yield item
        except ModelError as error:
            error.args = (self._clean.scrubber.scrubbed(str(error)),)
            raise

    async def close(self) -> None:
        await self._gateway.close()


class CleanRequests:
    """Requests without any value that `scrubber` knows. Each message is looked at once."""

    def __init__(self, scrubber: Scrubber) -> None:
        self.scrubber = scrubber
        self._count = 0
        self._systems: Bounded[str, str] = Bounded(SYSTEMS_KEPT, 0)
        self._seen: dict[int, tuple[weakref.ref[BaseModel], Any]] = {}

    def of(self, context: Context) -> Context:
        if self._count != len(self.scrubber):
            # What was clean so far may hold a value that is known only now.
            self._count = len(self.scrubber)
            self._systems = Bounded(SYSTEMS_KEPT, 0)
            self._seen.clear()
        system = self._systems.get(context.system)
        if system is None:
            system = self.scrubber.scrubbed(context.system)
            self._systems.put(context.system, system)
        messages = tuple(self._of(message) for message in context.messages)
        tools = tuple(self._of(tool) for tool in context.tools)
        given, clean = (*context.messages, *context.tools), (*messages, *tools)
        if system == context.system and all(map(is_, clean, given)):
            return context
        # What a provider may keep was measured on other texts.
        changed = {"system": system, "messages": messages, "tools": tools, "cached": 0}
        return context.model_copy(update=changed)

    def _of(self, value: Model) -> Model:
        key = id(value)
        seen = self._seen.get(key)
        if seen is not None and seen[0]() is value:
            return value if seen[1] is None else seen[1]
        given = value.model_dump()
        scrubbed = self._scrubbed(given)
        clean = None if scrubbed == given else type(value).model_validate(scrubbed)
        self._seen[key] = (weakref.ref(value, lambda gone: self._forget(key, gone)), clean)
        return value if clean is None else clean

    def _scrubbed(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.scrubber.scrubbed(value)
        if isinstance(value, dict):
            return {self._scrubbed(key): self._scrubbed(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._scrubbed(one) for one in value)
        return value

    def _forget(self, key: int, gone: weakref.ref[BaseModel]) -> None:
        # Another value may have taken the same place since.
        if key in self._seen and self._seen[key][0] is gone:
            del self._seen[key]
