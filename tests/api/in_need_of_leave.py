"""Turns worked by hand that wait for a person's leave."""

import asyncio
from typing import Any

from by_hand import Runtime

from everturn.agents import Agent, AgentSpec, ToolSpec
from everturn.approvals import Approvals, AskKind
from everturn.errors import UnknownSession
from everturn.messages import AssistantMessage, ToolCall, user_text
from everturn.session import RunTools, SessionKey, StepHead, ToolHead, TurnHead
from everturn.tools import ASK_USER
from everturn.views import ApprovalView
from everturn_activities.gateways import Usage
from everturn_activities.store import Inbound, Question, SessionSettings

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
SPEC = AgentSpec(
    agent=Agent(approvals=Approvals(tools=("write",))),
    tools=(ToolSpec(name="write", description="", parameters=SCHEMA),),
    workspace="/",
    working_dir="/",
)


async def sent(runtime: Runtime, session: str = "s") -> None:
    where = str(runtime.workspace)
    key = SessionKey("default", session)
    await runtime.store.create_session(key, SessionSettings(where, where))
    await runtime.store.accept(key, Inbound("m", "message", user_text("hello")))


ENDING = SPEC.model_copy(
    update={"agent": Agent(approvals=Approvals(tools=("write",), on_denial="end"))}
)


async def asks(
    runtime: Runtime,
    *calls: dict[str, Any],
    session: str = "s",
    preview: str | None = None,
    spec: AgentSpec = SPEC,
) -> list[ApprovalView]:
    """A turn whose first reply calls `write` with each of these arguments, and waits."""
    head = await runtime.begin(session, spec)
    context, attempt = await runtime.begin_step(head)
    name = spec.tools[0].name
    made = tuple(ToolCall(id=f"c{n}", name=name, arguments=given) for n, given in enumerate(calls))
    heads = [ToolHead(n, name, "queued", 1.0, asks=True) for n in range(len(calls))]
    await runtime.store.complete_model_call(
        context,
        attempt,
        AssistantMessage(parts=made),
        "tool_use",
        Usage(input_tokens=7, output_tokens=3),
        0.5,
        StepHead(1, "tool_use", heads),
        [],
    )
    kind: AskKind = "question" if name == ASK_USER else "approval"
    return await ask(runtime, head, preview, kind)


ASKING = SPEC.model_copy(
    update={"agent": Agent(), "tools": (ToolSpec(name=ASK_USER, description="", parameters={}),)}
)


async def question(runtime: Runtime, text: str, *choices: str) -> ApprovalView:
    """A turn that asks its user, and waits."""
    given = {"question": text, "choices": list(choices)}
    (asked,) = await asks(runtime, given, spec=ASKING)
    return asked


async def ask(
    runtime: Runtime,
    head: TurnHead,
    preview: str | None = None,
    kind: AskKind = "approval",
) -> list[ApprovalView]:
    """What the turn's worker does about the calls of its first step that need leave."""
    request = RunTools("default", head.session, head.turn, 1, head.epoch, [])
    stored = await runtime.store.tool_calls(SessionKey("default", head.session), head.turn, 1)
    waiting = [Question(call, preview, kind) for call in stored if call.asks]
    await runtime.store.ask_approvals(request, waiting, [])
    return await runtime.store.approvals("default", head.session)


async def decided(runtime: Runtime) -> None:
    """Until no question waits."""
    async with asyncio.timeout(30):
        while True:
            try:
                if not await runtime.store.approvals("default", None):
                    return
            except UnknownSession:
                pass
            await asyncio.sleep(0.02)


async def end(runtime: Runtime, session: str = "s") -> None:
    key = SessionKey("default", session)
    await runtime.store.accept(key, Inbound("stop", "cancel"))
