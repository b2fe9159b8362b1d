"""The independent count of executions: lines in `Effect`, on a connection of their own.

They are committed at once, so they survive a rollback, a kill and a cut of Django's connection.
Tests that let jobs run therefore use `transactional_db`, whose flush removes the lines.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from django.db import connections

START = """
    INSERT INTO lab_effect (model, job_id, attempt, lease, pid, start)
    VALUES (%s, %s, %s, %s, %s, clock_timestamp()) RETURNING id
"""
END = 'UPDATE lab_effect SET "end" = clock_timestamp() WHERE id = %s'


@contextmanager
def recorded(run: Any, ctx: Any) -> Iterator[None]:
    """Write the start of an execution now, and its end however the block ends."""
    line = (type(run).__name__, run.job_id, ctx.attempt, ctx.lease, os.getpid())
    effect = write(START, line)
    try:
        yield
    finally:
        # A test may have taken the server away; the line then shows no end.
        with suppress(psycopg.OperationalError):
            write(END, (effect,))


def write(statement: str, values: tuple[Any, ...]) -> Any:
    """Run one statement on a connection of its own; its first returned value, if any."""
    parameters = connections["default"].get_connection_params()
    plain = {key: parameters[key] for key in PLAIN if parameters.get(key)}
    with psycopg.connect(**plain, autocommit=True, connect_timeout=5) as own:
        cursor = own.execute(statement, values)
        row = cursor.fetchone() if cursor.description else None
        return row and row[0]


PLAIN = ("host", "port", "dbname", "user", "password")
