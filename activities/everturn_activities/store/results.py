"""What a model reads of a tool call's row."""

from typing import Any

from everturn.messages import ToolResult


def result_of(row: Any) -> ToolResult:
    """A call's result; a call that never ended answers so, for no call may stay unanswered."""
    if row.state == "done":
        text = row.result if row.note is None else with_note(row.result, row.note)
        return ToolResult(
            call_id=row.call_id,
            name=row.name,
            text=text,
            failed=bool(row.failed),
            recorded=bool(row.recorded),
        )
    return ToolResult(
        call_id=row.call_id, name=row.name, text="The call did not run to its end.", failed=True
    )


def with_note(text: str, note: str) -> str:
    """A result with what hooks say to it behind: of that, the tool wrote nothing."""
    return f"{text}\n[Note of a hook, and not of the tool:]\n{note}"
