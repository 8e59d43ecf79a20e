"""What a worker prints holds no known secret, whoever prints it."""

import subprocess
import sys

PROGRAM = """
import logging, sys
from everturn_workers.discreet import keep_out_of_logs, log_to_stderr
from everturn.scrubbing import Scrubber

scrubber = Scrubber()
log_to_stderr("info")
keep_out_of_logs(scrubber)
scrubber.learn("TOKEN", "canary-0123456789")
print("out", "canary-0123456789", flush=True)
print("err", "canary-0123456789", file=sys.stderr)
logging.getLogger("shop").warning("log %s", "canary-0123456789")
sys.stdout.fileno()
raise ValueError("raised canary-0123456789")
"""


def test_prints_log_lines_and_tracebacks_of_a_worker_show_no_secret():
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)

    assert ran.stdout == "out [secret TOKEN]\n"
    assert "err [secret TOKEN]\n" in ran.stderr
    assert "WARNING shop: log [secret TOKEN]\n" in ran.stderr
    assert "ValueError: raised [secret TOKEN]" in ran.stderr
    # The line of the program itself is quoted there too.
    assert "canary" not in ran.stderr
