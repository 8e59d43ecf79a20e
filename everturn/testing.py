"""For the tests of those who build on Everturn: real turns before a model that says what a test
wrote. The door to `everturn_workers.testing`, the one import that points upwards."""

from everturn_workers.testing import Result, Workbench, calls, says, server, workbench

__all__ = ["Result", "Workbench", "calls", "says", "server", "workbench"]
