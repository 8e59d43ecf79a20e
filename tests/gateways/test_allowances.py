"""What providers tell of their limits, and that it comes with the reply."""

from datetime import UTC, datetime, timedelta

import pytest
from model_servers import DONE, answer_json, asking, event, raw_server, replied, send_chunk

from everturn_activities.gateways.allowances import Allowance, allowances

# LiteLLM's own use of pydantic, where a provider tells its usage.
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_")


def openai(**told: str) -> dict[str, str]:
    given = {"limit": "60", "remaining": "59", "reset": "1s"} | told
    return {f"x-ratelimit-{what}-requests": value for what, value in given.items()}


@pytest.mark.parametrize(
    ("remaining", "reset", "seconds"),
    [
        ("59", "1s", 1),
        ("0", "6m0s", 360),
        ("59", "250ms", 0.25),
        ("0", "1h30m", 5400),
        ("59", "1.5", 1.5),
        ("53", "7.66s", 7.66),
    ],
)
def test_openais_names_and_durations_are_read(remaining: str, reset: str, seconds: float) -> None:
    (found,) = allowances(openai(remaining=remaining, reset=reset))
    assert found == Allowance("calls", 60, float(remaining), pytest.approx(seconds))


def test_anthropics_names_and_moments_are_read() -> None:
    full = (datetime.now(UTC) + timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "20",
        "anthropic-ratelimit-requests-reset": full,
        "anthropic-ratelimit-tokens-limit": "40000",
        "anthropic-ratelimit-tokens-remaining": "1000",
        "anthropic-ratelimit-tokens-reset": full,
    }
    calls, tokens = allowances(headers)
    assert (calls.counts, calls.limit, calls.remaining) == ("calls", 50, 20)
    assert (tokens.counts, tokens.limit, tokens.remaining) == ("tokens", 40_000, 1_000)
    assert calls.is_ample
    assert not tokens.is_ample
    assert 28 < calls.reset_seconds <= 30


@pytest.mark.parametrize(
    "told",
    [
        {"limit": "many"},
        {"limit": "0", "remaining": "0"},
        {"remaining": "-1"},
        {"remaining": "61"},
        {"reset": "soon"},
        {"reset": ""},
        {"reset": "T"},
        {"reset": "1s!"},
        {"limit": "nan"},
        {"limit": "inf"},
    ],
)
def test_what_cannot_be_read_tells_nothing(told: dict[str, str]) -> None:
    assert allowances(openai(**told)) == ()
    assert allowances({}) == ()


def test_a_bucket_that_fills_within_seconds_tells_nothing_that_lasts() -> None:
    assert allowances(openai(limit="20", remaining="2", reset="1s")) == ()
    assert allowances(openai(limit="20", remaining="20", reset="0s")) != ()


async def test_a_reply_brings_what_its_provider_told(gateway) -> None:
    async def answer(request, writer) -> None:
        lines = ["HTTP/1.1 200 OK", "content-type: text/event-stream"]
        lines += ["transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in openai(remaining="3", reset="57s").items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        for piece in (event({"content": "hi"}), event({}, "stop"), DONE):
            await send_chunk(writer, piece)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async with raw_server(answer) as server:
        _, reply = await replied(gateway, asking(server.url + "/v1"))
    assert reply.allowances == (Allowance("calls", 60, 3, 57),)


async def test_a_reply_in_one_piece_brings_it_too(chat_completions) -> None:
    async def answer(request, writer) -> None:
        message = {"role": "assistant", "content": "hi"}
        whole = {"choices": [{"message": message, "finish_reason": "stop"}]}
        told = {name.replace("-", "_"): value for name, value in openai(reset="1s").items()}
        await answer_json(writer, 200, whole, **told)

    async with raw_server(answer) as server:
        _, reply = await replied(chat_completions, asking(server.url + "/v1", stream=False))
    assert reply.allowances == (Allowance("calls", 60, 59, 1),)
