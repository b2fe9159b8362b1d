"""Runs in whatever state a test needs, and looks at their rows past every cache."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import connections, transaction

from runcontract.contract.errors import RunError
from runcontract.contract.states import Failure
from runcontract.lifecycle import transitions
from runcontract.lifecycle.table import Table, table_of

WORKER = "host-1-abc"


def sql(statement: str, *params: Any, using: str = "default") -> list[tuple[Any, ...]]:
    """Rows of one statement, straight from the database."""
    with connections[using].cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def row_of(run: Any, pk: Any = None) -> dict[str, Any]:
    """Every column of a run's row as the database has it; empty if there is none."""
    table, found = run._meta.db_table, pk or run.pk
    using = table_of(type(run)).alias
    with connections[using].cursor() as cursor:
        cursor.execute(f'SELECT * FROM "{table}" WHERE id = %s', [found])
        names = [column.name for column in cursor.description]
        for row in cursor.fetchall():
            return dict(zip(names, row, strict=True))
    return {}


def change(run: Any, assignments: str, *params: Any) -> Any:
    """Write columns by SQL, as nothing in the package would; the run, read again."""
    table = table_of(type(run))
    sql(
        f"UPDATE {table.name} SET {assignments} WHERE id = %s",
        *params,
        run.pk,
        using=table.alias,
    )
    return again(run)


def again(run: Any) -> Any:
    """The run as it is now, another instance."""
    found = transitions.read(table_of(type(run)), run.pk)
    assert found is not None, f"{run} is gone"
    return found


def queued(model: Any, **given: Any) -> Any:
    answer = model.objects.enqueue(**given)
    assert answer, answer
    return answer.run


def claimed(model: Any, *, worker: str = WORKER, **given: Any) -> Any:
    """A run that runs under `worker`."""
    return claim(queued(model, **given), worker)


def claim(run: Any, worker: str = WORKER) -> Any:
    found = transitions.claim(table_of(type(run)), run.pk, run.lease, worker)
    assert found is not None, f"{run} could not be claimed"
    return found


def succeeded(model: Any, **given: Any) -> Any:
    run = claimed(model, **given)
    transitions.succeed(run, {})
    return again(run)


def failed(model: Any, failure: Failure = Failure.PERMANENT, **given: Any) -> Any:
    run = claimed(model, **given)
    transitions.fail(run, failure, an_error(), {})
    return again(run)


def stale(model: Any, **given: Any) -> Any:
    """A running run whose worker has been silent for an hour."""
    return change(claimed(model, **given), "heartbeat_at = now() - interval '1 hour'")


def reap(run: Any, **how: Any) -> Any:
    """Reap a run by its known pulse; the run, read again."""
    transitions.reap_silent(
        table_of(type(run)), run.pk, run.lease, run.heartbeat_at, lost_error(), **how
    )
    return again(run)


def an_error(message: str = "no", **more: Any) -> RunError:
    given: dict[str, Any] = {"type": "ValueError", "traceback": "Traceback …", "attempt": 1}
    return RunError(message=message, **given | more)


def lost_error() -> RunError:
    return RunError("WorkerLost", "The worker was lost.", "", 1, "stale")


def table(model: Any) -> Table:
    return table_of(model)


def messages(client: Any, lane: str = "default") -> list[str]:
    """The addresses that wait in a lane, oldest first."""
    return [message.decode() for message in client.lrange(f"rq:queue:{lane}", 0, -1)]


def refused(move: Callable[[], Any], run: Any, error: type[Exception]) -> None:
    """`move` raises `error`, and the row is what it was."""
    before = row_of(run)
    try:
        move()
    except error:
        assert row_of(run) == before
        return
    raise AssertionError(f"{error.__name__} was not raised")


class _Undone(Exception):
    """What a caller's transaction ends with."""


@contextmanager
def rolled_back(using: str = "default") -> Iterator[None]:
    """A transaction, or a savepoint, that fails in its last line."""
    with suppress(_Undone), transaction.atomic(using=using):
        yield
        raise _Undone


@contextmanager
def own_unique(model: Any, column: str) -> Iterator[str]:
    """A unique constraint of the consumer's own on a column, outside of any transaction."""
    name = f"own_{model._meta.db_table}_{column}"
    sql(f'CREATE UNIQUE INDEX {name} ON "{model._meta.db_table}" ({column})')
    try:
        yield name
    finally:
        sql(f"DROP INDEX {name}")
