"""The tools that every workspace has."""

from everturn.tools import Tool
from everturn_activities.builtin.ask import ask_user
from everturn_activities.builtin.code import code
from everturn_activities.builtin.code_execution import code_execution
from everturn_activities.builtin.command import run_command
from everturn_activities.builtin.cron import cron
from everturn_activities.builtin.delegate import delegate
from everturn_activities.builtin.files import edit_file, list_files, read_file, write_file
from everturn_activities.builtin.knowledge import knowledge_query
from everturn_activities.builtin.memory import memory_delete, memory_load, memory_save
from everturn_activities.builtin.read_more import read_more
from everturn_activities.builtin.search import glob, grep
from everturn_activities.builtin.search_web import search_web
from everturn_activities.builtin.skill import skill
from everturn_activities.builtin.todo import todo
from everturn_activities.builtin.web import web_fetch


def builtins() -> dict[str, Tool]:
    """The built-in tools by name, in the order in which a model is told of them."""
    tools = (
        *(read_file, list_files, glob, grep, write_file, edit_file),
        *(run_command, code_execution, web_fetch, search_web, read_more, todo, ask_user, skill),
        *(code, knowledge_query, delegate, cron),
        *_OF_MEMORY,
    )
    return {tool.name: tool for tool in tools}


CODE, KNOWLEDGE = code.name, knowledge_query.name
ASKED_FOR = frozenset({code_execution.name})
"""The tools that are there only where a workspace's settings enable them (E9)."""
SEARCH_WEB = search_web.name
"""The tool that is there only where the settings say who searches (E11)."""
_OF_MEMORY = (memory_save, memory_load, memory_delete)
OF_MEMORY = frozenset(tool.name for tool in _OF_MEMORY)
"""The tools that are there only where a profile has a memory (E10)."""
