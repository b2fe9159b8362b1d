"""Enqueue: insert the row in the caller's transaction, or say which run stands in the way."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Model

from .. import signals
from ..conf import settings
from ..contract.constraints import expected_names
from ..exceptions import InvalidRun, TransportUnavailable
from ..transport import breaker_of, hint
from ..transport.messages import hint_key
from . import statements
from .database import execute
from .dispatch import can_dispatch_on_commit
from .insert import insert
from .table import Table, table_of
from .validate import check_key, check_lane, check_own, check_storable, differing

ROUNDS = 5
"""Rounds of insert and look-up that may come back empty under concurrency."""
SKIP, RERUN = "skip", "rerun"


@dataclass(frozen=True)
class Enqueued:
    """The answer: true when a run was created.

    `reason` is empty then, and otherwise `duplicate` (`run` holds this job_id) or `locked` (`run`
    holds this lock). `rerun` says that the holder will run once more. `differing` names the own
    fields in which `run` is not what was asked for; they are never replaced.
    """

    run: Any
    created: bool
    reason: str = ""
    rerun: bool = False
    differing: tuple[str, ...] = field(default=())

    def __bool__(self) -> bool:
        return self.created


@dataclass(frozen=True)
class Wish:
    """One run that somebody wants, checked."""

    table: Table
    run: Any
    given: tuple[str, ...]
    if_locked: str

    def refused(self, run: Any, reason: str, *, rerun: bool = False) -> Enqueued:
        """The answer where `run` stands in the way."""
        return Enqueued(run, False, reason, rerun, differing(self.table, self.given, self.run, run))


def enqueue(
    model: type[Model],
    /,
    *,
    job_id: str | None = None,
    lock_key: str | None = None,
    lane: str | None = None,
    if_locked: str = SKIP,
    **own: Any,
) -> Enqueued:
    """Insert a queued run in the caller's transaction and dispatch it on commit.

    Raises InvalidRun (a ValueError) before anything is written. No IntegrityError of the two
    contract constraints ever reaches the caller.
    """
    table = table_of(model)
    wanted = wish(table, job_id=job_id, lock_key=lock_key, lane=lane, if_locked=if_locked, **own)
    known = None if job_id is None else _known_by_hint(wanted)  # nobody holds a fresh one
    return enqueue_one(wanted) if known is None else known


def wish(
    table: Table,
    /,
    *,
    job_id: str | None = None,
    lock_key: str | None = None,
    lane: str | None = None,
    if_locked: str = SKIP,
    **own: Any,
) -> Wish:
    """Check what is wanted. Raises InvalidRun."""
    if if_locked not in (SKIP, RERUN):
        raise InvalidRun(f'if_locked must be "skip" or "rerun", not {if_locked!r}.')
    contract = {
        "job_id": uuid.uuid4().hex if job_id is None else check_key("job_id", job_id),
        "lock_key": None if lock_key is None else check_key("lock_key", lock_key),
        "lane": check_lane(table.policy.lane if lane is None else lane),
    }
    check_own(table, own)
    try:
        run = table.model(**contract, **own)
    except (TypeError, ValueError) as error:
        raise InvalidRun(f"{table.label} cannot be made from these fields: {error}") from error
    check_storable(table, run)
    given = (*own, *(["lock_key"] if lock_key is not None else []))
    return Wish(table, run, given, if_locked)


def _known_by_hint(wanted: Wish) -> Enqueued | None:
    """The journal's answer where Redis hints at a held job_id; None without a confirmed hint."""
    run = wanted.run
    if not settings().FAST_PATH or breaker_of(run.lane).open:
        return None
    try:
        if not hint(run.lane, hint_key(wanted.table.label, run.job_id)):
            return None
    except TransportUnavailable:
        return None
    return next((answer for expired, answer in _holder_of_job_id(wanted) if not expired), None)


def enqueue_one(wanted: Wish) -> Enqueued:
    """DO NOTHING followed by a read can come back empty under concurrency, so it goes round."""
    while True:
        for _ in range(ROUNDS):
            for run in insert(wanted.table, [wanted.run]):
                return created(wanted.table, run)
            answer = _who_stands_in_the_way(wanted)
            if answer is not None:
                return answer
        for run in _insert_plainly(wanted):
            return created(wanted.table, run)


def created(table: Table, run: Any) -> Enqueued:
    """The answer where `run` was inserted; says so to the signal's receivers on commit."""
    if signals.run_enqueued.has_listeners(table.model) and can_dispatch_on_commit(table.alias):
        tell = partial(signals.run_enqueued.send_robust, table.model, run=run)
        transaction.on_commit(tell, using=table.alias, robust=True)
    return Enqueued(run, True)


def _who_stands_in_the_way(wanted: Wish) -> Enqueued | None:
    """The holder of the job_id or of the lock; one that is expired is released here."""
    table = wanted.table
    for expired, answer in _holder_of_job_id(wanted):
        if not expired:
            return answer
        execute(table.alias, statements.release_expired(table), [[answer.run.pk]])
    for row in execute(table.alias, statements.holder_of_lock(table), [wanted.run.lock_key]):
        run = table.build(table.alias, row)
        if wanted.if_locked == SKIP:
            return wanted.refused(run, "locked")
        for asked in execute(table.alias, statements.ask_rerun(table), [run.pk]):
            return wanted.refused(table.build(table.alias, asked), "locked", rerun=True)
    return None


def _holder_of_job_id(wanted: Wish) -> list[tuple[bool, Enqueued]]:
    """Whether the holder's window is over, and the answer if not."""
    table = wanted.table
    rows = execute(table.alias, statements.holder_of_job_id(table), [wanted.run.job_id])
    return [
        (expired, wanted.refused(table.build(table.alias, row), "duplicate"))
        for expired, *row in rows
    ]


def _insert_plainly(wanted: Wish) -> Sequence[Any]:
    """The conflict is with a unique constraint of the consumer's own: let its error surface.

    Nothing is returned if it was one of the contract's after all, whose holder came and went.
    """
    table = wanted.table
    try:
        with transaction.atomic(using=table.alias):
            return insert(table, [wanted.run], on_conflict=None)
    except IntegrityError as error:
        if _constraint_of(error) not in expected_names(table.model._meta.concrete_model):
            raise
    return ()


def _constraint_of(error: IntegrityError) -> str | None:
    """The name of the constraint that refused."""
    diagnosis = getattr(error.__cause__, "diag", None)
    return getattr(diagnosis, "constraint_name", None)
