"""A process that stands in for the worker or the API of an `up`.

python standin.py NAME [stubborn] [ends] [crashes] : says that it is ready, writes its pid to
run/NAME.pid of the home and waits. `stubborn` outlives its parent and ignores SIGTERM, as on
systems whose kernel does not kill orphans; `ends` exits with code 3 before it is ready; `crashes`
notes the time in run/NAME.starts and exits once it was ready.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

name, *ways = sys.argv[1:]
if "ends" in ways:
    print("the port is taken", flush=True)
    sys.exit(3)
if "stubborn" in ways:
    ctypes.CDLL(None).prctl(1, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
run = Path(os.environ["EVERTURN_HOME"]) / "run"
part = run / f"{name}.pid.part"
part.write_text(str(os.getpid()))
part.replace(run / f"{name}.pid")
(run / f"{name}.env").write_text("\n".join(f"{k}={v}" for k, v in os.environ.items()))
print(f"ready http://127.0.0.1:{os.environ['EVERTURN_PORT']}", flush=True)
if "crashes" in ways:
    with (run / f"{name}.starts").open("a") as starts:
        starts.write(f"{time.monotonic()}\n")
    sys.exit(1)
while True:
    signal.pause()
