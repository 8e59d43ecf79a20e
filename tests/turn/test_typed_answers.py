"""Answers that must fit a schema."""

import json

import pytest
from harness import Bench, calls, says, scripted
from pydantic import BaseModel

from everturn.agents import Agent, answering
from everturn.context.nudges import UNFIT
from everturn.errors import WorkspaceError
from everturn.events import Event
from everturn_activities.gateways import ModelGateway
from everturn_activities.workspace import load

SCHEMA = """
output:
  type: object
  properties: {total: {type: integer}}
  required: [total]
  additionalProperties: false
"""


def agent(made: Bench, front_matter: str) -> None:
    (made.workspace / "agents").mkdir(exist_ok=True)
    (made.workspace / "agents" / "default.md").write_text(f"---\n{front_matter}\n---\nAdd.")


async def finished(made: Bench, gateway: ModelGateway) -> Event:
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "What is 1 + 2?")
        return (await made.until(key, "turn_finished"))[-1]


async def test_an_answer_is_what_the_model_calls_response_with(made: Bench):
    agent(made, SCHEMA)
    gateway = scripted(calls("add", a=1, b=2), calls("response", total=3))

    ended = await finished(made, gateway)

    assert ended.body["outcome"] == "completed"
    assert json.loads(ended.body["text"]) == {"total": 3}
    [tool] = [tool for tool in gateway.requests[0].tools if tool.name == "response"]
    assert tool.parameters["required"] == ["total"]


async def test_an_answer_that_does_not_fit_goes_back_with_the_reason(made: Bench):
    agent(made, SCHEMA)
    gateway = scripted(calls("response", total="three"), calls("response", total=3))

    ended = await finished(made, gateway)

    assert json.loads(ended.body["text"]) == {"total": 3}
    [wrong] = gateway.requests[1].messages[-1].results
    assert wrong.failed
    assert "total" in wrong.text


async def test_a_plain_answer_is_asked_for_again_in_the_form_of_the_schema(made: Bench):
    agent(made, SCHEMA)
    gateway = scripted(says("It is 3."), calls("response", total=3))

    ended = await finished(made, gateway)

    assert json.loads(ended.body["text"]) == {"total": 3}
    assert gateway.requests[1].messages[-1].parts[0].text == UNFIT


async def test_a_plain_answer_that_fits_is_taken(made: Bench):
    agent(made, SCHEMA)

    ended = await finished(made, scripted(says('{"total": 3}')))

    assert (ended.body["outcome"], ended.body["text"]) == ("completed", '{"total": 3}')


async def test_a_model_that_never_answers_in_the_form_fails_with_the_reason(made: Bench):
    agent(made, f"{SCHEMA}\nrecoveries_max: 2")

    ended = await finished(made, scripted(*[says("It is 3.")] * 5))

    assert ended.body["outcome"] == "model_failed"
    assert "did not fit the agent's output schema 3 times in a row" in ended.body["reason"]


def test_a_pydantic_model_is_a_schema():
    class Total(BaseModel):
        total: int

    made = Agent(output=Total)

    assert made.output == Total.model_json_schema()
    assert answering(made.output).parameters["properties"]["total"]["type"] == "integer"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("{type: string}", "the schema must be one of type object"),
        ("{type: object, properties: {a: {type: intger}}}", "is no JSON schema"),
    ],
)
def test_a_wrong_schema_is_refused_when_the_agent_is_loaded(made: Bench, output: str, said: str):
    agent(made, f"output: {output}")

    with pytest.raises(WorkspaceError, match=said):
        load(made.workspace).spec()
