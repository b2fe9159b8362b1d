"""How statements reach Postgres: prepared, on the connection that Django keeps for an alias.

The ORM builds its SQL anew each time, which costs more than the statement itself; the life of a
run is a handful of fixed statements, so they are written once and prepared by the server. Where
DISABLE_SERVER_SIDE_CURSORS says that a pooler stands between, nothing is prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.base import DatabaseWrapper
from django.db.models import Model
from django.db.utils import Error, InterfaceError, OperationalError

DatabaseFailure = (OperationalError, InterfaceError)
"""What a lost, full or restarting database raises."""


def write_alias(model: type[Model]) -> str:
    """The alias that a model's rows are written to; each read that leads to a write goes there."""
    return router.db_for_write(model) or DEFAULT_DB_ALIAS


def execute(alias: str, statement: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows. Raises django.db errors, as the ORM does."""
    connection = connections[alias]
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    raw = connection.connection
    prepare = not connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS", False)
    try:
        with connection.wrap_database_errors, _preparing(raw), psycopg.Cursor(raw) as cursor:
            cursor.execute(statement, params, prepare=prepare)
            return cursor.fetchall() if cursor.description else []
    except Error:
        if connection.in_atomic_block:
            connection.needs_rollback = True
        raise


@contextmanager
def _preparing(raw: psycopg.Connection[Any]) -> Iterator[None]:
    """Let statements that ask for it be prepared, which Django forbids a connection by default."""
    before = raw.prepare_threshold
    raw.prepare_threshold = before or 1
    try:
        yield
    finally:
        raw.prepare_threshold = before


def as_utc(value: datetime) -> datetime:
    """A time that a statement gave AT TIME ZONE 'UTC', so that no setting can make it ambiguous."""
    return value.replace(tzinfo=UTC)


def database_now(alias: str) -> datetime:
    """The clock that counts."""
    return as_utc(execute(alias, "SELECT clock_timestamp() AT TIME ZONE 'UTC'")[0][0])


def answers(alias: str) -> bool:
    """Whether the database is there, asked on a new connection."""
    forget_connection(connections[alias])
    try:
        execute(alias, "SELECT 1")
    except DatabaseFailure:
        forget_connection(connections[alias])
        return False
    return True


_LIMITS = {
    "connect_timeout": 5,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""libpq's: seconds, and milliseconds for the last."""


def limit_waiting() -> None:
    """In this process, let no dead line to a database wait for longer than half a minute.

    What the project itself sets in OPTIONS counts.
    """
    for connection in connections.all():
        if connection.vendor == "postgresql":
            options = connection.settings_dict.setdefault("OPTIONS", {})
            connection.settings_dict["OPTIONS"] = _LIMITS | options


def forget_connection(connection: BaseDatabaseWrapper) -> None:
    """Close this one, so that its next statement opens a fresh one."""
    try:
        connection.close()
    except Exception:  # noqa: BLE001 - broken as it is, it only has to go
        connection.connection = None


def forget_connections() -> None:
    """Close every connection of this thread, so that the next statement opens a fresh one."""
    for connection in connections.all(initialized_only=True):
        forget_connection(connection)


def notice_lost_client(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Let the server end a statement of ours within a second of this process's death.

    A statement that waits for a lock would otherwise outlive its killed process, and write when
    the run has long been given to another. Not behind a pooler, whose sessions are everybody's.
    """
    pooled = connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS", False)
    if connection.vendor != "postgresql" or pooled or not connection.get_autocommit():
        return
    with suppress(Error), connection.cursor() as cursor:
        cursor.execute("SET client_connection_check_interval = 1000")


def cancel_statements(*, timeout: float = 2.0) -> None:
    """Ask the server to stop what this thread's connections were doing when they were interrupted.

    Without it an abandoned statement goes on in the server, locks and all.
    """
    for connection in connections.all(initialized_only=True):
        raw = connection.connection
        if isinstance(raw, psycopg.Connection) and not raw.closed:
            with suppress(Exception):
                raw.cancel_safe(timeout=timeout)


def tidy_connections(*, idle: bool) -> None:
    """After perform: close what a job left broken or open, so that nothing of ours is written
    into a transaction that nobody commits; when idle, close what is too old.

    A busy worker keeps its connection whatever CONN_MAX_AGE says; with 0 it is closed when idle.
    """
    for connection in connections.all(initialized_only=True):
        if idle:
            connection.close_if_unusable_or_obsolete()
        elif connection.errors_occurred or _left_open(connection):
            # An atomic block that a job left open will never be left by anybody.
            connection.in_atomic_block = connection.closed_in_transaction = False
            forget_connection(connection)


def _left_open(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction is open, by atomic(), by set_autocommit() or by a bare BEGIN."""
    raw = connection.connection
    if connection.in_atomic_block:
        return True
    if not isinstance(raw, psycopg.Connection):
        return False
    return bool(
        connection.autocommit != connection.settings_dict["AUTOCOMMIT"]
        or raw.info.transaction_status != psycopg.pq.TransactionStatus.IDLE
    )


def close_before_fork() -> None:
    """Close every connection and pool: nothing that is open may be shared with a child."""
    connections.close_all()
    for connection in connections.all(initialized_only=True):
        if isinstance(connection, DatabaseWrapper):
            connection.close_pool()
