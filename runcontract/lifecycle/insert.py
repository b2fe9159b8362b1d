"""Insert queued rows; what meets a unique constraint is left out, and no error is raised for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connections, transaction
from django.db.models import AutoField, Func, Model, sql
from django.db.models.constants import OnConflict

from .dispatch import can_dispatch_on_commit, dispatch_on_commit, parcel
from .table import Table


class _Clock(Func):
    function = "clock_timestamp"
    arity = 0


PARAMETERS = 60_000
"""The protocol of Postgres has room for 65,535 in one statement."""


def insert(
    table: Table,
    runs: Sequence[Model],
    *,
    alias: str | None = None,
    on_conflict: OnConflict | None = OnConflict.IGNORE,
) -> list[Any]:
    """Insert runs in this order with ON CONFLICT DO NOTHING, and dispatch them on commit.

    Returns the rows that now exist, as instances; a run that met any unique constraint is not
    among them, unless `on_conflict` is None: then that constraint's IntegrityError is raised.
    Waits for an uncommitted twin, as the constraint does.
    """
    alias = alias or table.alias
    hooked = can_dispatch_on_commit(alias)
    for run in runs:
        run.queued_at = _Clock()  # type: ignore[attr-defined]
        run.dispatched_at = _Clock() if hooked else None  # type: ignore[attr-defined]
    size = PARAMETERS // len(table.fields)
    created: list[Any] = []
    for keyed in (False, True):
        alike = [run for run in runs if (run.pk is not None) == keyed]
        for start in range(0, len(alike), size):
            created += _insert(table, alike[start : start + size], alias, keyed, on_conflict)
    if created and hooked:
        dispatch_on_commit(
            alias, [parcel(table, run.pk, run.lease, run.lane, run.job_id) for run in created]
        )
    return created


def _insert(
    table: Table, runs: list[Any], alias: str, keyed: bool, on_conflict: OnConflict | None
) -> list[Any]:
    fields = [
        field
        for field in table.model._meta.local_concrete_fields
        if not field.generated and (keyed or not isinstance(field, AutoField))
    ]
    query = sql.InsertQuery(table.model, on_conflict=on_conflict)
    query.insert_values(fields, runs)
    compiler = query.get_compiler(using=alias)
    compiler.returning_fields = table.fields
    created = []
    with transaction.mark_for_rollback_on_error(using=alias), connections[alias].cursor() as cursor:
        for statement, params in compiler.as_sql():
            cursor.execute(statement, params)
            created += [table.build(alias, row) for row in cursor.fetchall()]
    return created


def own_fields(table: Table) -> list[Any]:
    """The consumer's own columns: what a follow-up or a new run takes over."""
    return [field for field in table.own_fields if not field.primary_key]


def copy_of(table: Table, run: Any, job_id: str) -> Any:
    """A new, unsaved run with another run's own fields, lock key and lane."""
    own = {field.attname: getattr(run, field.attname) for field in own_fields(table)}
    return table.model(job_id=job_id, lock_key=run.lock_key, lane=run.lane, **own)
