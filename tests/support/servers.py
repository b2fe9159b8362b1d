"""The session's PostgreSQL and Valkey, and what chaos tests do to them.

They are shared by all tests. A test that crashes one starts it again on the same data, and the
fixtures of conftest.py make sure of it.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import redis
from django.conf import settings
from django.db import connections

from runcontract.testing.servers import Postgres, ServerError, Valkey
from tests import settings as names

# fsync=off is safe against a crash of the server, which is all that the tests cause;
# synchronous_commit=off would not be.
POSTGRES_SETTINGS: dict[str, str | int] = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": 200,
    "shared_buffers": "64MB",
}


class Servers:
    """What conftest.py starts; None where the environment names a server of somebody else's."""

    postgres: Postgres | None = None
    valkey: Valkey | None = None

    @classmethod
    def start(cls) -> None:
        """Start what the environment does not name. Raises ServerError."""
        remove_leftovers()
        if names.OWN_DATABASE:
            cls.postgres = Postgres(names.SERVERS, **POSTGRES_SETTINGS).start()
        if names.OWN_REDIS:
            cls.valkey = Valkey(names.SERVERS).start()

    @classmethod
    def stop(cls) -> None:
        """Stop what was started, and remove its data."""
        for server in (cls.valkey, cls.postgres):
            if server is not None:
                server.stop()
                server.close()
        cls.postgres = cls.valkey = None
        if names.OWN_DATABASE or names.OWN_REDIS:
            shutil.rmtree(names.SERVERS, ignore_errors=True)


def remove_leftovers() -> None:
    """Remove the directories of earlier pytests of this checkout that were killed."""
    for old in names.SERVERS.parent.glob(f"{names.SERVERS_PREFIX}*"):
        if old != names.SERVERS and not _alive(old.name.rpartition("-")[2]):
            with contextlib.suppress(ServerError):
                _let_go(old)


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass
    return True


def _let_go(base: Path) -> None:
    for kind in (Postgres, Valkey):
        kind(base).close()  # refused while somebody owns it
    shutil.rmtree(base, ignore_errors=True)


def redis_client(*, timeout: float = 5) -> redis.Redis:
    """A client that fails at once, or after `timeout` seconds, rather than try again."""
    return redis.Redis.from_url(
        settings.RQ_QUEUES["default"]["URL"],
        retry=None,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
    )


def close_connections() -> None:
    """Drop this process's database connections, for the server behind them went away."""
    for connection in connections.all(initialized_only=True):
        connection.close()


def crash_postgres(server: Postgres) -> None:
    """Crash it; the connections of this process are dropped.

    Its recovery is that of this test alone, not of all those before.
    """
    with connections["default"].cursor() as cursor:
        cursor.execute("CHECKPOINT")
    server.crash()
    close_connections()


def cut_sessions(alias: str = "default", *, where: str = "true") -> int:
    """End every other session of this database, as a firewall would; how many they were."""
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            f" WHERE datname = current_database() AND pid <> pg_backend_pid() AND {where}"
        )
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])


def waiting_for_locks(where: str = "true", *, alias: str = "default") -> int:
    """How many sessions of this database wait for a lock; asked anew inside a transaction too."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            f" AND datname = current_database() AND {where}"
        )
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])


@contextlib.contextmanager
def read_only(client: redis.Redis) -> Iterator[None]:
    """Redis answers every write with -READONLY."""
    client.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        yield
    finally:
        client.execute_command("REPLICAOF", "NO", "ONE")


@contextlib.contextmanager
def out_of_memory(client: redis.Redis) -> Iterator[None]:
    """Redis answers every write with -OOM."""
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)


@contextlib.contextmanager
def hanging(server: Valkey) -> Iterator[None]:
    """Redis takes connections and answers nothing."""
    server.pause()
    try:
        yield
    finally:
        server.resume()
