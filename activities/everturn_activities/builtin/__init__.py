"""The tools that every workspace has."""

from everturn.tools import Tool
from everturn_activities.builtin.command import run_command
from everturn_activities.builtin.files import edit_file, list_files, read_file, write_file


def builtins() -> dict[str, Tool]:
    """The built-in tools by name, in the order in which a model is told of them."""
    tools = (read_file, list_files, write_file, edit_file, run_command)
    return {tool.name: tool for tool in tools}
