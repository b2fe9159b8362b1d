"""How statements reach Postgres: prepared, on the connection that Django keeps for an alias.

The ORM builds its SQL anew each time, which costs more than the statement itself; the life of a
run is a handful of fixed statements, so they are written once and prepared by the server. Where
DISABLE_SERVER_SIDE_CURSORS says that a pooler stands between, nothing is prepared.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
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
    prepare = not connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS", False)
    try:
        with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
            cursor.execute(statement, params, prepare=prepare)
            return cursor.fetchall() if cursor.description else []
    except Error:
        if connection.in_atomic_block:
            connection.needs_rollback = True
        raise


def forget_connections() -> None:
    """Close every connection of this thread, so that the next statement opens a fresh one."""
    for connection in connections.all(initialized_only=True):
        try:
            connection.close()
        except Exception:  # noqa: BLE001 - broken as it is, it only has to go
            connection.connection = None


def cancel_statements() -> None:
    """Ask the server to stop what this thread's connections were doing when they were interrupted.

    Without it an abandoned statement goes on in the server, locks and all.
    """
    for connection in connections.all(initialized_only=True):
        raw = connection.connection
        if isinstance(raw, psycopg.Connection) and not raw.closed:
            with suppress(Exception):
                raw.cancel_safe(timeout=2.0)


def tidy_connections(*, idle: bool) -> None:
    """After a run: close what a job left broken or in a strange mode; when idle, what is too old.

    A busy worker keeps its connection whatever CONN_MAX_AGE says; with 0 it is closed when idle.
    """
    for connection in connections.all(initialized_only=True):
        if idle:
            connection.close_if_unusable_or_obsolete()
        elif (
            connection.errors_occurred
            or connection.in_atomic_block
            or not _as_configured(connection)
        ):
            connection.close()


def _as_configured(connection: BaseDatabaseWrapper) -> bool:
    """Whether no transaction is open: not for Django and not, by a job's BEGIN, for Postgres."""
    raw = connection.connection
    idle = raw is None or raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    return idle and bool(connection.get_autocommit() == connection.settings_dict["AUTOCOMMIT"])


def close_before_fork() -> None:
    """Close every connection and pool: nothing that is open may be shared with a child."""
    connections.close_all()
    for connection in connections.all(initialized_only=True):
        if isinstance(connection, DatabaseWrapper):
            connection.close_pool()
