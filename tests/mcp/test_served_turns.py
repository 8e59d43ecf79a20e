"""Whole turns with the reference servers of MCP."""

from harness import Bench, calls, says
from mcp_servers import server, table
from plays import play, tools_of

from everturn.messages import ToolMessage


async def test_a_turn_calls_tools_of_both_reference_servers(made: Bench):
    (made.workspace / "notes.txt").write_text("Buy tea.")
    files = {
        "everturn.toml": table("everything", server("everything", "stdio"))
        + table("files", server("filesystem", str(made.workspace)))
    }
    played = await play(
        made,
        "go",
        files=files,
        replies=[
            {
                "calls": [
                    {"name": "mcp_everything_get-sum", "arguments": {"a": 2, "b": 3}},
                    {
                        "name": "mcp_files_read_text_file",
                        "arguments": {"path": str(made.workspace / "notes.txt")},
                    },
                ]
            },
            says("done"),
        ],
    )
    [results] = [m for m in await made.transcript(played.key) if isinstance(m, ToolMessage)]
    assert [result.failed for result in results.results] == [False, False]
    assert "The sum of 2 and 3 is 5." in results.results[0].text
    assert "Buy tea." in results.results[1].text
    assert "mcp_files_write_file" in tools_of(played.requests[0])
    assert calls("x")
