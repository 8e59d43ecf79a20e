"""Packages with tools, installed as pip leaves them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from everturn_activities.tool_packages import packaged_tools

Install = Callable[..., None]

ORDERS = '''
import threading

from everturn import ToolContext, tool


@tool(effect="pure", quick=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="keyed", secrets=["TOKEN"])
async def order(item: str, context: ToolContext) -> list[str]:
    """Order something."""
    context.progress("ordering")
    assert context.working_dir.is_dir()
    return [context.session, context.idempotency_key, context.secret("TOKEN")]


@tool(effect="keyed", secrets=["TOKEN"])
def order_slowly(item: str, context: ToolContext) -> list[object]:
    """Order something in a thread."""
    context.progress("ordering")
    on_loop = threading.current_thread() is threading.main_thread()
    return [context.session, context.idempotency_key, context.secret("TOKEN"), on_loop]


again = add
LISTED = [order]
'''


@contextmanager
def packages(folder: Path) -> Iterator[Install]:
    """A folder of packages that Python finds within the block, and what installs one there."""
    target = folder / "site-packages"
    target.mkdir()
    before = {*sys.modules}
    sys.path.insert(0, str(target))

    def install(package: str, points: str, code: str = ORDERS) -> None:
        (target / f"{package}.py").write_text(code)
        info = target / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[everturn.tools]\n{points}\n")

    packaged_tools.cache_clear()
    try:
        yield install
    finally:
        packaged_tools.cache_clear()
        sys.path.remove(str(target))
        for name in {*sys.modules} - before:
            if str(target) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
