"""What tests of clusters share: folders that PostgreSQL's user can enter, and a workspace."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOOLS = Path(__file__).with_name("cluster_tools.py")


@contextmanager
def cluster_folder() -> Iterator[Path]:
    """Not below pytest's own, which nobody else can enter. It is kept where a test fails."""
    folder = Path(tempfile.mkdtemp(prefix="everturn-cluster-"))
    folder.chmod(0o711)
    try:
        yield folder
    except BaseException:
        print(f"Logs and data are kept in {folder}.")
        raise
    shutil.rmtree(folder)


def workspace_of(folder: Path) -> Path:
    workspace = folder / "workspace"
    (workspace / "tools").mkdir(parents=True)
    (workspace / "everturn.toml").write_text('[model]\nname = "openai/gpt-5-mini"\n')
    shutil.copy(TOOLS, workspace / "tools" / "cluster_tools.py")
    return workspace
