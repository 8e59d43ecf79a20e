"""What is long is left out unless it is asked for: `make faults` runs it. Tests that carry rows of
the list of features are marked so: `make features` runs them."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_servers import BINARIES, NO_POSTGRES, PostgresServer, postgres_server
from preloaded import Preloaded
from redis_servers import BINARY, RedisServer, redis_server
from rows import rows_of
from s3_servers import S3Server

NO_REDIS = "There is no redis-server: nothing is tested on Redis; install redis-server."

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


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of collected tests and all imported modules live until the end: a full collection
    that looked through them stopped a workflow for more than the two seconds it is given."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def aws_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What AWS's tools find, whatever this machine has."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA-of-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-tests")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))


@pytest.fixture(scope="session")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preloaded]:
    """Starts our processes at once, from one that has imported all they need."""
    made = Preloaded(tmp_path_factory.mktemp("preloaded"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    if BINARY is None:
        pytest.skip(NO_REDIS)
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The PostgreSQL of this process of tests."""
    if BINARIES is None:
        pytest.skip(NO_POSTGRES)
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """A database with the schema that nobody has used."""
    return postgres.emptied()
