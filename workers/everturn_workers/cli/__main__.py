"""`python -m everturn_workers.cli`: the `everturn` command without its script."""

from everturn_workers.cli.main import main

main()
