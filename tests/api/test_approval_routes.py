"""A person decides about tool calls over HTTP."""

import httpx
import pytest
from asking import asks, sent
from by_hand import Runtime

from everturn.approvals import ToolVerdict
from everturn.client import Client
from everturn.errors import UnknownSession, UsageError


async def test_a_call_that_waits_is_read_and_decided_once(client: Client, runtime: Runtime) -> None:
    await sent(runtime)
    await asks(runtime, {"path": "a.txt"}, preview="+new")
    (asked,) = await client.approvals()
    assert (asked.session, asked.tool, asked.arguments) == ("s", "write", {"path": "a.txt"})
    assert (asked.preview, asked.state) == ("+new", "open")

    yes = ToolVerdict(approval=1, verdict="approve", digest=asked.digest)
    woken = len(runtime.waker.woken)
    first = await client.answer_approval("s", yes, id="mine")
    assert (first.status, first.duplicate) == ("accepted", False)
    assert len(runtime.waker.woken) == woken + 1
    assert (await client.answer_approval("s", yes, id="mine")).duplicate
    late = await client.answer_approval("s", ToolVerdict(approval=1, verdict="deny"))
    assert (late.status, late.note) == ("too_late", "Approval 1 was approved before.")
    assert await client.approvals("s") == []


async def test_another_call_than_the_one_that_was_shown_is_not_approved(
    client: Client, runtime: Runtime
) -> None:
    await sent(runtime)
    await asks(runtime, {"path": "a.txt"})
    with pytest.raises(UsageError, match="is for another call"):
        await client.answer_approval(
            "s", ToolVerdict(approval=1, verdict="approve", digest="0" * 64)
        )
    with pytest.raises(UsageError, match="has no approval 2"):
        await client.answer_approval("s", ToolVerdict(approval=2, verdict="deny"))
    with pytest.raises(UnknownSession):
        await client.approvals("nowhere")
    assert len(await client.approvals("s")) == 1


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("1", {"verdict": "approve"}, "names the digest of the call"),
        ("1", {"verdict": "maybe"}, "verdict"),
        ("1", {"verdict": "deny", "pattern": {}}, "names no arguments and no pattern"),
        ("first", {"verdict": "deny"}, "approval"),
        ("0", {"verdict": "deny"}, "approval: Input should be greater than or equal to 1"),
    ],
)
async def test_a_verdict_that_is_none_is_refused_in_a_sentence(
    served: object, runtime: Runtime, path: str, body: dict[str, object], said: str
) -> None:
    await sent(runtime)
    await asks(runtime, {"path": "a.txt"})
    async with httpx.AsyncClient(base_url=served.url) as http:  # type: ignore[attr-defined]
        answer = await http.post(f"/v1/sessions/s/approvals/{path}", json=body)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]
