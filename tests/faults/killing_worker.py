"""A worker that kills itself right before or right after its n-th commit to the store.

EVERTURN_TEST_COMMIT is `before:N` or `after:N`; each commit is told on stdout.
"""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everturn.session import SessionKey
from everturn_activities.store import opening
from everturn_activities.store.database import SqliteDatabase
from everturn_workers import serving
from everturn_workers.settings import read_settings

_side, _, _number = os.environ["EVERTURN_TEST_COMMIT"].partition(":")


class KillingDatabase(SqliteDatabase):
    def __init__(self, path: Path, told: Callable[[set[SessionKey]], None]) -> None:
        super().__init__(path, told)
        self._commits = 0
        dialect = self._engine.dialect
        commit = dialect.do_commit

        def counted(connection: Any) -> None:
            if threading.current_thread().name != "store-write":
                commit(connection)
                return
            self._commits += 1
            print(f"commit {self._commits}", flush=True)
            if self._commits == int(_number) and _side == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            commit(connection)
            if self._commits == int(_number) and _side == "after":
                os.kill(os.getpid(), signal.SIGKILL)

        dialect.do_commit = counted  # type: ignore[method-assign]


opening.SqliteDatabase = KillingDatabase  # type: ignore[misc]
serving.serve(read_settings())
