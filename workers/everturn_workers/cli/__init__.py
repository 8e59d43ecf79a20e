"""The `everturn` command."""

from everturn_workers.cli.main import main

__all__ = ["main"]
