"""What a new workspace begins with."""

from pathlib import Path

from everturn.errors import WorkspaceError

_SETTINGS = """\
# Settings of this workspace. Every line is optional; those that begin with '# ' show defaults.

# The folder that tools work in, relative to this file.
working_dir = "."

[agent]
# The agent of sessions that name none: agents/<name>.md
default = "default"
# How its context is composed, as `everturn profiles list` shows: default, kiro, krill, eggent,
# boxagnts, kontekst, or a file of your own in profiles/.
# profile = "default"

[model]
# Any name that LiteLLM knows, such as "anthropic/claude-sonnet-4-5" or "ollama/qwen3".
name = "openai/gpt-5-mini"
# base_url = "http://127.0.0.1:8080/v1"    # an endpoint that speaks OpenAI's protocol
# api_key_variable = "MY_API_KEY"          # whose value that endpoint is sent as its key
# temperature = 0.7                        # and top_p, top_k, repeat_penalty
# tokens_max = 4096                        # the longest reply, in tokens

[tools]
# Tools that no agent of this workspace gets, such as "run_command".
exclude = []

# What agents are told of this workspace.
# [project]
# name = "Shop"
# description = "Sells tea."
# instructions = "Prices are in euros."

# What agents remember.
# [memory]
# scopes = ["project", "user", "session"]  # whose facts are kept; [] keeps none
# consolidate_tokens = 2000                # a larger memory is made smaller after a turn
# model = "openai/gpt-5-nano"              # by this model

# MCP servers, whose tools agents have: `everturn mcp add NAME -- COMMAND` writes such a table.
# [mcp.servers.files]
# command = "npx"
# args = ["-y", "@modelcontextprotocol/server-filesystem", "."]

# What `everturn knowledge add` has searched is found by words, and with a model by meanings.
# [knowledge]
# embedding_model = "openai/text-embedding-3-small"

# What tools read that no model is told of: where it is, and never what it is.
# [secrets]
# SHOP_TOKEN = {env = "SHOP_TOKEN"}        # or {file = "PATH"}, {keyring = "SERVICE/USER"}

# Who searches the web for agents.
# [search]
# provider = "searxng"                     # or "brave", "tavily" with key = "SECRET"
# url = "http://127.0.0.1:8888"

# Tools that a provider runs itself, by its name or a model's.
# [native_tools]
# anthropic = ["web_search"]
"""

_AGENT = """\
---
description: Works on the files of the working folder.
# model: openai/gpt-5-mini
# tools: [read_file, list_files, write_file, edit_file, run_command, count_words]
# access: full              # or read-only, search-only
# profile: default
# steps_max: 50
---
You are a careful assistant that works on the files of its working folder with the tools that
it is given. Use a tool when it settles a question better than a guess, say plainly what you
could not do, and end with a short answer.
"""

_TOOL = '''\
"""A tool of this workspace. Every function with @tool in tools/*.py is one."""

from everturn import tool


# The model is told the name, the docstring and the types. `effect` says what running a call
# twice would do: "pure", "idempotent", "keyed", or "once", which is never started twice.
@tool(effect="pure", quick=True)
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())
'''

_FILES = {
    "everturn.toml": _SETTINGS,
    "agents/default.md": _AGENT,
    "tools/words.py": _TOOL,
}
# Empty at first, and so not in version control: nothing needs them to exist.
_FOLDERS = ("agents", "tools", "skills", "context")


def starter_files(directory: Path) -> list[Path]:
    """The files that `create` writes where they do not exist."""
    return [directory / name for name in _FILES]


def create(directory: Path) -> list[Path]:
    """Make `directory` a workspace; answers with the files that it wrote.

    Those of `starter_files` that are not among them existed and were kept as they are.
    """
    directory = directory.expanduser()
    try:
        for folder in _FOLDERS:
            # Not for everybody to write, whatever the umask: such code is never loaded.
            (directory / folder).mkdir(mode=0o755, parents=True, exist_ok=True)
        return [path for path in starter_files(directory) if _written(path, directory)]
    except OSError as error:
        raise WorkspaceError(
            f"{error.filename or directory} cannot be created: {error.strerror};"
            " choose another folder, or mend that."
        ) from None


def _written(path: Path, directory: Path) -> bool:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_FILES[path.relative_to(directory).as_posix()])
    except FileExistsError:
        return False
    return True
