"""What is long is left out unless it is asked for: `make faults` runs it. Tests that carry rows of
the list of features are marked so: `make features` runs them."""

import signal

import pytest
from rows import rows_of

# A shell that starts the tests in the background has them, and whatever they start, ignore
# SIGINT, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        carried = rows_of(item.name, getattr(getattr(item, "obj", None), "__doc__", None))
        if carried:
            item.add_marker("rows")
            item.user_properties += [("row", row) for row in carried]
    if config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]
