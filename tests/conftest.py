"""Real servers for the whole session, clean ones for each test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from runcontract.testing.servers import Postgres, ServerError, Valkey
from runcontract.transport.connection import _breakers
from tests.support.processes import Command
from tests.support.servers import Servers, close_connections, redis_client

BROWSER_TESTS = Path(__file__).parent / "browser"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--with-browser", action="store_true", help="run the tests that drive a real browser too"
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """In the main thread, for the servers live as long as the thread that starts them."""
    if session.config.option.collectonly:
        return
    try:
        Servers.start()
    except ServerError as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)


def pytest_unconfigure() -> None:
    Servers.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their folder, and leave browser tests out unless they are asked for."""
    for item in items:
        for folder in ("browser", "chaos", "race"):
            if folder in item.path.parts:
                item.add_marker(folder)
    if not config.option.with_browser:
        left_out = [item for item in items if item.get_closest_marker("browser")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def redis_server() -> Iterator[redis.Redis]:
    """An empty Redis; what a test leaves there is thrown away."""
    with redis_client() as client:
        client.flushall()
        _breakers.clear()  # a server that an earlier test took away is back
        yield client
        client.flushall()


@pytest.fixture
def valkey(redis_server: redis.Redis) -> Iterator[Valkey]:
    """The Valkey server itself, to be stopped, crashed or paused; running again afterwards."""
    server = Servers.valkey
    if server is None:
        pytest.skip("REDIS_URL names a server that is not ours to crash")
    yield server
    if server.running:
        server.resume()
    server.start()


@pytest.fixture
def postgres(transactional_db: None) -> Iterator[Postgres]:
    """The PostgreSQL server itself, to be stopped or crashed; running again afterwards."""
    server = Servers.postgres
    if server is None:
        pytest.skip("DATABASE_URL names a server that is not ours to crash")
    yield server
    server.start()
    close_connections()


@pytest.fixture
def start(transactional_db: None) -> Iterator[Callable[..., Command]]:
    """`start("runworker", "default", settings={…})`: a real process, ended at teardown."""
    started: list[Command] = []

    def starter(*arguments: str, **options: Any) -> Command:
        started.append(Command(*arguments, **options))
        return started[-1]

    yield starter
    for command in reversed(started):
        command.discard()


@pytest.fixture
def start_worker(start: Callable[..., Command]) -> Callable[..., Command]:
    """A worker that is ready: `start_worker("default", "--processes", "2")`."""
    return lambda *lanes, **options: start("runworker", *lanes, **options).wait_until_ready()


@pytest.fixture
def start_scheduler(start: Callable[..., Command]) -> Callable[..., Command]:
    """A scheduler that is ready."""
    return lambda *options, **more: start("runscheduler", *options, **more).wait_until_ready()
