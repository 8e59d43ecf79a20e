"""An `up` as a process of its own, with stand-ins for worker and API: up_process.py WAYS..."""

import asyncio
import sys
from pathlib import Path

from everturn.errors import EverturnError
from everturn_workers.settings import read_settings
from everturn_workers.supervisor import Commands, Up

standin = [sys.executable, str(Path(__file__).with_name("standin.py"))]
commands = Commands(
    worker=[*standin, "worker", *sys.argv[1:]],
    api=[*standin, "api", *sys.argv[1:]],
    fetch=[sys.executable, "-c", "import sys; sys.exit('No Temporal server could be obtained.')"],
)
try:
    asyncio.run(Up(read_settings(), lambda line: print(line, flush=True), commands).run())
except EverturnError as error:
    print(error, flush=True)
    sys.exit(1)
