"""What a model reads of a tool call's row."""

from typing import Any

from everturn.messages import ToolResult


def result_of(row: Any) -> ToolResult:
    """A call's result; a call that never ended answers so, for no call may stay unanswered."""
    if row.state == "done":
        return ToolResult(
            call_id=row.call_id, name=row.name, text=row.result, failed=bool(row.failed)
        )
    return ToolResult(
        call_id=row.call_id, name=row.name, text="The call did not run to its end.", failed=True
    )
