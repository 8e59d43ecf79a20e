"""The tools that a workspace's `tools/*.py` define."""

import hashlib
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from everturn.errors import WorkspaceError
from everturn.tools import Tool
from everturn_activities.trust import read_code, require_trusted


@dataclass(frozen=True)
class _Loaded:
    digest: str
    module: str
    tools: tuple[Tool, ...]


_loaded: dict[Path, _Loaded] = {}
"""What each file defined when it was last loaded; a file is run again when its content changed."""


def load_tools(workspace: Path, reserved: frozenset[str]) -> dict[str, tuple[Tool, str]]:
    """Every `Tool` that a file in `tools/` defines, and that file, by the tool's name.

    `reserved` names are those of the built-in tools.
    """
    folder = workspace / "tools"
    found: dict[str, tuple[Tool, str]] = {}
    if not folder.is_dir():
        return found
    require_trusted(folder)
    for path in sorted(folder.glob("*.py")):
        file = f"tools/{path.name}"
        for tool in _tools_of(path):
            if tool.name in reserved:
                raise WorkspaceError(
                    f"{path} defines a tool {tool.name!r}, which is the name of a built-in one;"
                    " give it another name."
                )
            if tool.name in found:
                raise WorkspaceError(
                    f"{path} defines a tool {tool.name!r}, and so does {found[tool.name][1]};"
                    " rename one of them."
                )
            found[tool.name] = (tool, file)
    return found


def _tools_of(path: Path) -> tuple[Tool, ...]:
    source = read_code(path)
    digest = hashlib.sha256(source).hexdigest()
    known = _loaded.get(path)
    if known is not None and known.digest == digest:
        return known.tools
    name = f"everturn_tools_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}_{digest[:16]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    # Before it runs: dataclasses and pydantic look a class's module up while it is defined.
    sys.modules[name] = module
    try:
        # Compiled here and not by an importer, which would read and write __pycache__: files
        # that nothing checks, next to code that is checked.
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except BaseException as error:
        # It is somebody else's code: whatever it raises is for its author, and raised in a
        # task, a KeyboardInterrupt would end the event loop.
        del sys.modules[name]
        raise WorkspaceError(_explained(path, error)) from None
    tools = {id(value): value for value in vars(module).values() if isinstance(value, Tool)}
    if known is not None:
        sys.modules.pop(known.module, None)
    _loaded[path] = _Loaded(digest, name, tuple(tools.values()))
    return _loaded[path].tools


def _explained(path: Path, error: BaseException) -> str:
    line: int | None
    if isinstance(error, SyntaxError) and error.filename == str(path):
        line, message = error.lineno, error.msg
    else:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((f.lineno for f in reversed(frames) if f.filename == str(path)), None)
        message = " ".join(str(error).split()).removesuffix(".")
    where = f"{path} line {line}" if line else str(path)
    mend = "install what it imports" if isinstance(error, ImportError) else "mend the file"
    told = f"{type(error).__name__}: {message}".removesuffix(": ")
    return f"{where} cannot be loaded: {told}; {mend}."
