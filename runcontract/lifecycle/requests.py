"""What people ask of a run: cancel it, or redo it."""

from __future__ import annotations

import json
from typing import Any

from django.db import IntegrityError, transaction

from ..contract.errors import RunError, as_json, fingerprint
from ..contract.states import Failure
from . import statements
from .database import execute
from .dispatch import dispatch_on_commit, parcel
from .enqueue import Enqueued
from .insert import copy_of, insert
from .table import Table, table_of
from .transitions import after_failure, read

CANCELLED = "cancelled"
ASKED = "asked"
ENDED = "ended"
GONE = "gone"


def cancel(run: Any) -> str:
    """Cancel a run: `cancelled` at once if it was queued, `asked` if it runs.

    `ended` says that it was terminal already and is left alone, `gone` that there is no such row.
    """
    table = table_of(type(run))
    for _ in range(3):
        if _cancel_queued(table, run.pk):
            return CANCELLED
        if execute(table.alias, statements.ask_cancel(table), [run.pk]):
            return ASKED
        row = read(table, run.pk)
        if row is None:
            return GONE
        if row.finished_at is not None:
            return ENDED
    return ASKED


def _cancel_queued(table: Table, pk: Any) -> bool:
    row = read(table, pk)
    if row is None:
        return False
    attempt = row.attempts if table.counts else 1
    error = RunError("Cancelled", "Cancelled before it ran.", "", attempt, str(Failure.CANCELLED))
    document = json.dumps(as_json(error, previous=row.last_error, steps=None))
    params = [document, fingerprint(error), table.policy.hold_failed, pk]
    with transaction.atomic(using=table.alias):
        rows = execute(table.alias, statements.cancel_queued(table), params)
        if not rows:
            return False
        cancelled = table.build(table.alias, rows[0])
        after_failure(table, cancelled, Failure.CANCELLED, error, asked=cancelled.rerun_requested)
    return True


def redo(run: Any) -> Enqueued:
    """Do failed work again, in the way of its kind; never raises for what stands against it.

    A model with an attempt counter: the same row, queued again with a fresh allowance. A plain
    one: a new run with the same job_id and own fields. `reason` says what it met: `duplicate`,
    `locked`, `not failed` or `gone`.
    """
    table = table_of(type(run))
    answer = _redo_row(table, run) if table.counts else _redo_anew(table, run)
    return _why_not(table, run) if answer is None else answer


def _redo_row(table: Table, run: Any) -> Enqueued | None:
    alias = table.alias
    try:
        with transaction.atomic(using=alias):
            rows = execute(alias, statements.redo(table), [run.pk])
    except IntegrityError:
        return None
    if not rows:
        return None
    again = table.build(alias, rows[0])
    dispatch_on_commit(alias, [parcel(table, again.pk, again.lease, again.lane, again.job_id)])
    return Enqueued(again, True)


def _redo_anew(table: Table, run: Any) -> Enqueued | None:
    alias = table.alias
    with transaction.atomic(using=alias):
        rows = execute(alias, statements.release_failed(table), [run.pk])
        if rows:
            failed = table.build(alias, rows[0])
            created = insert(table, [copy_of(table, failed, failed.job_id)], alias=alias)
            if created:
                return Enqueued(created[0], True)
            transaction.set_rollback(True, using=alias)
    return None


def _why_not(table: Table, run: Any) -> Enqueued:
    row, alias = read(table, run.pk), table.alias
    if row is None:
        return Enqueued(run, False, "gone")
    if row.state != "failed":
        return Enqueued(row, False, "not failed")
    for reason, statement, value in (
        ("locked", statements.holder_of_lock(table), row.lock_key),
        ("duplicate", statements.holder_of_job_id(table), row.job_id),
    ):
        for found in execute(alias, statement, [value]) if value is not None else []:
            holder = table.build(alias, found[-len(table.fields) :])
            if holder.pk != row.pk:
                return Enqueued(holder, False, reason)
    return Enqueued(row, False, "refused by a constraint of the model's own")
