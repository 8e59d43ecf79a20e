"""A reply as it grows, whoever sends its pieces."""

from everturn_activities.gateways.accumulate import NAME_CHARACTERS_MAX, Accumulator


def test_a_name_that_no_tool_can_have_is_cut():
    growing = Accumulator()
    told = growing.call(0, "c1", "n" * 100_000, "{}")
    assert len(told.name) == NAME_CHARACTERS_MAX == 200
    (call,) = growing.message("tool_use").tool_calls
    assert call.name == told.name
