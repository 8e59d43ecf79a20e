"""The Python files of a workspace, run once for each content."""

import hashlib
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from everturn.errors import WorkspaceError
from everturn_activities.trust import read_code


@dataclass(frozen=True)
class _Loaded:
    digest: str
    module: ModuleType


_loaded: dict[Path, _Loaded] = {}
"""What each file defined when it was last loaded; a file is run again when its content changed."""


def names_of(path: Path) -> dict[str, Any]:
    """What the file `path` defines. Raises WorkspaceError where it cannot be loaded."""
    source = read_code(path)
    digest = hashlib.sha256(source).hexdigest()
    known = _loaded.get(path)
    if known is not None and known.digest == digest:
        return vars(known.module)
    name = f"everturn_{path.parent.name}_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    module = ModuleType(f"{name}_{digest[:16]}")
    module.__file__ = str(path)
    # Before it runs: dataclasses and pydantic look a class's module up while it is defined.
    sys.modules[module.__name__] = module
    try:
        # Compiled here and not by an importer, which would read and write __pycache__: files
        # that nothing checks, next to code that is checked.
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except BaseException as error:
        # It is somebody else's code: whatever it raises is for its author, and raised in a
        # task, a KeyboardInterrupt would end the event loop.
        del sys.modules[module.__name__]
        raise WorkspaceError(_explained(path, error)) from None
    if known is not None:
        sys.modules.pop(known.module.__name__, None)
    _loaded[path] = _Loaded(digest, module)
    return vars(module)


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
