"""What people ask of a run: cancel it, or redo it."""

from __future__ import annotations

import json
from typing import Any

from django.db import IntegrityError, transaction

from ..contract.errors import RunError, as_json, fingerprint
from ..contract.states import TERMINAL, Failure, State
from . import statements
from .database import execute
from .dispatch import dispatch_on_commit, parcel
from .enqueue import ROUNDS, Enqueued
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
    while True:
        row = read(table, run.pk)
        if row is None:
            return GONE
        if row.state == State.QUEUED and _cancel_queued(table, row):
            return CANCELLED
        if execute(table.alias, statements.ask_cancel(table), [run.pk]):
            return ASKED
        if row.state in TERMINAL:
            return ENDED


def _cancel_queued(table: Table, row: Any) -> bool:
    attempt = row.attempts if table.counts else 1
    error = RunError("Cancelled", "Cancelled before it ran.", "", attempt, str(Failure.CANCELLED))
    document = json.dumps(as_json(error, previous=row.last_error, steps=None))
    params = [document, fingerprint(error), table.policy.hold_failed, row.pk, row.lease]
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
    `locked`, `not failed` or `gone`. A holder whose window is over is released by the redo that
    meets it.
    """
    table = table_of(type(run))
    for _ in range(ROUNDS):
        answer = _redo_row(table, run) if table.counts else _redo_anew(table, run)
        answer = answer or _why_not(table, run)
        if answer is not None:
            return answer
    return Enqueued(run, False, "refused by a constraint of the model's own")


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
    try:
        with transaction.atomic(using=alias):
            for row in execute(alias, statements.release_failed(table), [run.pk]):
                failed = table.build(alias, row)
                new = copy_of(table, failed, failed.job_id)
                for created in insert(table, [new], alias=alias):
                    return Enqueued(created, True)
            transaction.set_rollback(True, using=alias)
    except IntegrityError:
        return None
    return None


def _why_not(table: Table, run: Any) -> Enqueued | None:
    """What stands in the way; None where nothing does any more."""
    row, alias = read(table, run.pk), table.alias
    if row is None:
        return Enqueued(run, False, "gone")
    if row.state != State.FAILED:
        return Enqueued(row, False, "not failed")
    for held in execute(alias, statements.holder_of_lock(table), [row.lock_key]):
        return Enqueued(table.build(alias, held), False, "locked")
    for expired, *found in execute(alias, statements.holder_of_job_id(table), [row.job_id]):
        holder = table.build(alias, found)
        if expired:
            execute(alias, statements.release_expired(table), [[holder.pk]])
        elif holder.pk != row.pk:
            return Enqueued(holder, False, "duplicate")
    return None
