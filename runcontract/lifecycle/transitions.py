"""The moves of a run's worker: claim, next attempt, settle, defer, give back, reap.

The only moves beside these are enqueue, and what people ask for (requests).  A refusal is
LeaseLost. A reply that was lost after its commit is asked about, not guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.dispatch import Signal

from .. import signals
from ..contract.errors import RunError, as_json, fingerprint
from ..contract.retry import backoff
from ..contract.states import Failure, OnLost, State
from ..exceptions import LeaseLost
from . import statements
from .database import DatabaseFailure, execute
from .dispatch import dispatch_on_commit, parcel
from .hooks import HOOK_LEFT_OUT, call_on_failed
from .insert import copy_of, insert
from .table import Table, table_of

Stats = Mapping[str, Any]


def claim(table: Table, pk: Any, lease: int, worker: str) -> Any | None:
    """Take a queued, due run that still has this lease; None is a refusal."""
    alias = table.alias
    rows = execute(alias, statements.claim(table), [worker, pk, lease])
    return table.build(alias, rows[0]) if rows else None


def claim_waiting(table: Table, lanes: Sequence[str], worker: str) -> Any | None:
    """Take the run that has waited longest in the first of these lanes, without a message."""
    alias = table.alias
    rows = execute(alias, statements.claim_waiting(table), [list(lanes), worker])
    return table.build(alias, rows[0]) if rows else None


def claimed_by(table: Table, worker: str) -> list[Any]:
    """What runs under a worker's name: the answer to a claim whose reply was lost."""
    alias = table.alias
    rows = execute(alias, statements.read_claimed(table), [worker])
    return [table.build(alias, row) for row in rows]


def read(table: Table, pk: Any) -> Any | None:
    """The row as it is on the write alias; None if it is gone."""
    alias = table.alias
    rows = execute(alias, statements.read(table), [pk])
    return table.build(alias, rows[0]) if rows else None


def attempts_of(table: Table, row: Any) -> int:
    """The number of the attempt that this row is at; a plain run counts its repeats."""
    return int(row.attempts if table.counts else row.stats.get("repeats", 0) + 1)


def note(run: Any, stats: Stats) -> bool:
    """Write the live step stats; True if a cancel is asked. Raises LeaseLost."""
    table = table_of(type(run))
    rows = execute(table.alias, statements.note(table), [json.dumps(stats), run.pk, run.lease])
    if not rows:
        raise LeaseLost(table.label, run.pk, run.lease)
    return bool(rows[0][0])


def next_attempt(run: Any, ended: int, error: RunError, stats: Stats) -> bool:
    """Count the attempt that follows a short pause, before it begins.

    False if a cancel was asked: then the run is to be settled as cancelled. Raises LeaseLost.
    """
    table = table_of(type(run))
    document = as_json(error, previous=run.last_error, steps=None)
    params = [*_error(document, error), json.dumps(stats), run.pk, run.lease, ended]
    if not execute(table.alias, statements.next_attempt(table), params):
        row = _under_our_lease(table, run)
        if row.state != State.RUNNING:
            raise LeaseLost(table.label, run.pk, run.lease)
        if row.cancel_requested:
            return False
        if attempts_of(table, row) != ended + 1:
            raise LeaseLost(table.label, run.pk, run.lease)
    run.last_error = document
    if table.counts:
        run.attempts = ended + 1
    return True


def _under_our_lease(table: Table, run: Any) -> Any:
    """The row that a move of ours did not meet. Raises LeaseLost if it is not ours any more."""
    row = read(table, run.pk)
    if row is None or row.lease != run.lease:
        raise LeaseLost(table.label, run.pk, run.lease)
    return row


def succeed(run: Any, stats: Stats) -> None:
    """Settle as succeeded and begin the idempotency window. Raises LeaseLost."""
    table = table_of(type(run))
    params = [table.policy.hold_succeeded, json.dumps(stats), run.pk, run.lease]
    if not execute(table.alias, statements.succeed(table), params):
        _succeed_and_rerun(table, run, params)
    run.state = str(State.SUCCEEDED)
    _announce(signals.run_succeeded, table, run)


def _succeed_and_rerun(table: Table, run: Any, params: list[Any]) -> None:
    with transaction.atomic(using=table.alias):
        rows = execute(table.alias, statements.succeed_and_rerun(table), params)
        if rows:
            _say(table, run.pk, _follow_up(table, read(table, run.pk)) if rows[0][0] else {})
        else:
            _check_ours(table, run)


def fail(run: Any, failure: Failure, error: RunError, stats: Stats, *, hook: bool = True) -> None:
    """Settle as failed, with the consumer's `on_failed` in the same transaction. Raises LeaseLost.

    `hook=False` leaves `on_failed` out, where it broke the transaction each time before. A cancel
    discards a rerun that was asked for, and says so in `last_error`.
    """
    table = table_of(type(run))
    steps = stats.get("steps")
    document = as_json(error, previous=run.last_error, steps=steps)
    params = [str(failure), *_error(document, error), table.policy.hold_failed]
    params += [json.dumps(stats), run.pk, run.lease]
    with transaction.atomic(using=table.alias):
        rows = execute(table.alias, statements.fail(table), params)
        if rows:
            after_failure(table, run, failure, error, asked=rows[0][0], hook=hook)
        else:
            _check_ours(table, run)
            _announce(signals.run_failed, table, run, error=error)


def _error(document: Mapping[str, Any], error: RunError) -> list[str]:
    return [json.dumps(document), fingerprint(error)]


def after_failure(
    table: Table, run: Any, failure: Failure, error: RunError, *, asked: bool, hook: bool = True
) -> None:
    """What belongs to the transaction that failed a run: its hook, and the rerun asked for."""
    pk, run.state, run.failure = run.pk, str(State.FAILED), str(failure)
    source = read(table, pk) if asked else None
    said = call_on_failed(table.alias, run, error) if hook else dict(HOOK_LEFT_OUT)
    if asked and failure == Failure.CANCELLED:
        said["rerun"] = "discarded by the cancel"
    elif asked:
        said |= _follow_up(table, source)
    _say(table, pk, said)
    _announce(signals.run_failed, table, run, error=error)


def _say(table: Table, pk: Any, said: Mapping[str, Any]) -> None:
    if said:
        execute(table.alias, statements.add_to_error(table), [json.dumps(said), pk])


def _announce(signal: Signal, table: Table, run: Any, **data: Any) -> None:
    if signal.has_listeners(type(run)):
        tell = partial(signal.send_robust, type(run), run=run, **data)
        transaction.on_commit(tell, using=table.alias, robust=True)


def _follow_up(table: Table, source: Any) -> dict[str, str]:
    """Insert the rerun that was asked for, in this very transaction; says why if it cannot.

    `source` is the row itself, not what a job may have made of its instance. A database that
    fails meanwhile is an error: the move is tried again, and no rerun is lost.
    """
    base, number = _serial(source.job_id)
    for ending in (f"~{serial}" for serial in range(number + 1, number + 1001)):
        job_id = base[: 255 - len(ending)] + ending
        try:
            with transaction.atomic(using=table.alias):
                created = insert(table, [copy_of(table, source, job_id)], alias=table.alias)
        except DatabaseFailure:
            raise
        except Exception as problem:  # noqa: BLE001 - the run settles all the same
            return {"rerun": f"refused by the database: {type(problem).__name__}"}
        if created:
            return {}
        if not execute(table.alias, statements.holder_of_job_id(table), [job_id]):
            break
    return {"rerun": _why_no_rerun(table, source)}


def _why_no_rerun(table: Table, source: Any) -> str:
    for row in execute(table.alias, statements.holder_of_lock(table), [source.lock_key]):
        return f"left to {table.build(table.alias, row).job_id}, which has the lock already"
    return "refused: a unique constraint of the model's own stands against it"


def _serial(job_id: str) -> tuple[str, int]:
    found = re.fullmatch(r"(.+)~(\d{1,9})", job_id, re.DOTALL)
    return (found[1], int(found[2])) if found else (job_id, 1)


def _check_ours(table: Table, run: Any) -> None:
    """Raises LeaseLost unless the row stands where our own move, its reply lost, has put it."""
    if _under_our_lease(table, run).state == State.RUNNING:
        raise LeaseLost(table.label, run.pk, run.lease)


def defer(run: Any, pause: timedelta, error: RunError, stats: Stats) -> bool:
    """Queue again, not before the pause is over, and free the worker.

    False if a cancel was asked: then the run is to be settled as cancelled. Raises LeaseLost.
    """
    table = table_of(type(run))
    document = as_json(error, previous=run.last_error, steps=stats.get("steps"))
    params = [pause, *_error(document, error), json.dumps(stats), run.pk, run.lease]
    if not execute(table.alias, statements.defer(table), params):
        row = _under_our_lease(table, run)
        if row.state == State.RUNNING:
            return False
    run.state = str(State.QUEUED)
    _announce(signals.run_deferred, table, run, error=error)
    return True


def give_back(table: Table, pk: Any, lease: int) -> bool:
    """Queue again at once and refund the attempt, because the worker stops; then dispatch.

    False is a refusal: the lease is lost, or a cancel was asked.
    """
    with transaction.atomic(using=table.alias):
        rows = execute(table.alias, statements.give_back(table), [pk, lease])
        dispatch_on_commit(table.alias, [parcel(table, *row) for row in rows])
    return bool(rows)


def call_back(table: Table, pk: Any, lease: int) -> bool:
    """Make an address void, because whoever took it may be dead; the run is dispatched anew.

    A claim by the old address that is still on its way finds nothing then. False: the run is not
    queued under this lease (any more).
    """
    with transaction.atomic(using=table.alias):
        rows = execute(table.alias, statements.call_back(table), [pk, lease])
        dispatch_on_commit(table.alias, [parcel(table, *row) for row in rows])
    return bool(rows)


def reap(
    table: Table, pk: Any, lease: int, error: RunError, *, kind: Failure = Failure.STALE
) -> None:
    """Settle a run whose worker is known to be dead, as `on_lost` says. Raises LeaseLost.

    `kind` is timeout where the worker had to be killed at the policy's timeout.
    """
    with transaction.atomic(using=table.alias):
        rows = execute(table.alias, statements.reap_known(table), [pk, lease])
        _settle_lost(table, _locked(table, rows, pk, lease), error, kind)


def reap_silent(
    table: Table, pk: Any, lease: int, pulse: datetime, error: RunError, *, hook: bool = True
) -> None:
    """Reap a run that is still silent since that pulse and that nobody has locked.

    Raises LeaseLost if it has moved, or if someone holds its row. `hook` as for `fail`.
    """
    with transaction.atomic(using=table.alias):
        rows = execute(table.alias, statements.reap_silent(table), [pk, lease, pulse])
        _settle_lost(table, _locked(table, rows, pk, lease), error, Failure.STALE, hook=hook)


def _locked(table: Table, rows: Sequence[Sequence[Any]], pk: Any, lease: int) -> Any:
    if not rows:
        raise LeaseLost(table.label, pk, lease)
    return table.build(table.alias, rows[0])


def _settle_lost(
    table: Table, run: Any, error: RunError, kind: Failure, *, hook: bool = True
) -> None:
    """The row is locked by this transaction, so what was read of it holds."""
    failure = Failure.CANCELLED if run.cancel_requested else kind
    again = not run.cancel_requested and _may_run_again(table, run, kind)
    attempt = run.attempts if table.counts else error.attempt
    error = replace(error, attempt=attempt, failure="" if again else str(failure))
    steps = (run.stats or {}).get("steps")
    counter = "timeouts" if kind == Failure.TIMEOUT else "lost"
    stored = _error(as_json(error, previous=run.last_error, steps=steps), error)
    if again:
        pause = [_lost_pause(run, table.policy)] if table.counts else []
        statement = statements.reap_retry(table, counter)
        execute(table.alias, statement, [*stored, *pause, run.pk, run.lease])
        run.state = str(State.QUEUED)
        _announce(signals.run_deferred, table, run, error=error)
        return
    params = [str(failure), *stored, table.policy.hold_failed, run.pk, run.lease]
    rows = execute(table.alias, statements.reap_fail(table, counter), params)
    after_failure(table, run, failure, error, asked=rows[0][0], hook=hook)


def _lost_pause(run: Any, policy: Any) -> timedelta:
    return backoff(
        max(1, run.attempts),
        base=policy.backoff_base,
        cap=policy.backoff_cap,
        floor=policy.backoff_floor,
    )


def _may_run_again(table: Table, run: Any, kind: Failure) -> bool:
    policy = table.policy
    if kind == Failure.TIMEOUT:
        return table.counts and run.attempts < policy.max_attempts
    lost = int((run.stats or {}).get("lost", 0)) + 1
    if policy.on_lost != OnLost.RETRY or lost >= policy.max_lost:
        return False
    return not table.counts or bool(run.attempts < policy.max_attempts)
