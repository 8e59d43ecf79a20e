"""What a turn runs under, known by its hash."""

from everturn.agents import Agent, AgentSpec, ToolSpec

ADD = ToolSpec(name="add", description="Adds.", parameters={"type": "object"})


def test_a_spec_with_other_tools_is_another_spec() -> None:
    spec = AgentSpec(agent=Agent(), tools=(ADD,), workspace="/w", working_dir="/w")
    known = spec.hash, spec.tool("add")

    without = spec.with_tools(())

    assert known == (spec.hash, ADD)
    assert without.hash != spec.hash
    assert without.tool("add") is None
    assert AgentSpec.model_validate_json(without.model_dump_json()).hash == without.hash
