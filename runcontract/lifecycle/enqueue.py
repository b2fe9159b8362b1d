"""Enqueue: insert the row in the caller's transaction, or say which run stands in the way."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Model

from .. import signals
from ..conf import settings
from ..exceptions import InvalidRun, TransportUnavailable
from ..transport import breaker_of, hint
from ..transport.messages import hint_key
from . import statements
from .database import execute
from .insert import insert
from .table import Table, table_of
from .validate import check_key, check_lane, check_own

ROUNDS = 5
"""Rounds of insert and look-up that may come back empty under concurrency."""
CHUNK = 500
"""Rows of one INSERT of bulk_enqueue."""
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
class _Wish:
    """One run that somebody wants, checked."""

    table: Table
    run: Any
    given: tuple[str, ...]
    if_locked: str


def enqueue(
    model: type[Model],
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
    wish = _wish(table, job_id=job_id, lock_key=lock_key, lane=lane, if_locked=if_locked, **own)
    known = _known_by_hint(wish)
    return _enqueue(wish) if known is None else known


def bulk_enqueue(
    model: type[Model], rows: Iterable[Mapping[str, Any]], *, if_locked: str = SKIP
) -> list[Enqueued]:
    """Enqueue any number of runs, each a mapping of enqueue's arguments; answers in their order.

    Every row is checked before the first is written. Rows are inserted sorted, so that two bulk
    calls cannot deadlock.
    """
    table = table_of(model)
    wishes = [_wish(table, **{"if_locked": if_locked, **row}) for row in rows]
    order = sorted(range(len(wishes)), key=lambda position: _sort_key(wishes[position].run))
    answers: dict[int, Enqueued] = {}
    for start in range(0, len(order), CHUNK):
        _enqueue_chunk(table, wishes, order[start : start + CHUNK], answers)
    for position in order:
        if position not in answers:
            answers[position] = _enqueue(wishes[position])
    return [answers[position] for position in range(len(wishes))]


def _sort_key(run: Any) -> tuple[str, str]:
    return run.job_id, run.lock_key or ""


def _enqueue_chunk(
    table: Table, wishes: Sequence[_Wish], positions: Sequence[int], answers: dict[int, Enqueued]
) -> None:
    created = {run.job_id: run for run in insert(table, [wishes[at].run for at in positions])}
    for position in positions:
        run = created.pop(wishes[position].run.job_id, None)
        if run is not None:
            answers[position] = _created(table, run)


def _wish(
    table: Table,
    *,
    job_id: str | None = None,
    lock_key: str | None = None,
    lane: str | None = None,
    if_locked: str = SKIP,
    **own: Any,
) -> _Wish:
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
    given = (*own, *(["lock_key"] if lock_key is not None else []))
    return _Wish(table, run, given, if_locked)


def _known_by_hint(wish: _Wish) -> Enqueued | None:
    """The journal's answer where Redis hints at a held job_id; None without a confirmed hint."""
    run = wish.run
    if not settings().FAST_PATH or breaker_of(run.lane).open:
        return None
    try:
        if not hint(run.lane, hint_key(wish.table.label, run.job_id)):
            return None
    except TransportUnavailable:
        return None
    held = execute(wish.table.alias, statements.holder_of_job_id(wish.table), [run.job_id])
    return _duplicate(wish, held[0]) if held and not held[0][0] else None


def _enqueue(wish: _Wish) -> Enqueued:
    """DO NOTHING followed by a read can come back empty under concurrency, so it goes round."""
    for _ in range(ROUNDS):
        created = insert(wish.table, [wish.run])
        if created:
            return _created(wish.table, created[0])
        answer = _holder_of_job_id(wish)
        if answer is None:
            answer = _holder_of_lock(wish)
        if answer is not None:
            return answer
    return _insert_plainly(wish)


def _created(table: Table, run: Any) -> Enqueued:
    if signals.run_enqueued.has_listeners(table.model):
        tell = partial(signals.run_enqueued.send_robust, table.model, run=run)
        transaction.on_commit(tell, using=table.alias, robust=True)
    return Enqueued(run, True)


def _holder_of_job_id(wish: _Wish) -> Enqueued | None:
    """Who holds the job_id; an expired holder is released here, and the insert goes round."""
    table, alias = wish.table, wish.table.alias
    for held in execute(alias, statements.holder_of_job_id(table), [wish.run.job_id]):
        if not held[0]:
            return _duplicate(wish, held)
        run = table.build(alias, held[1:])
        execute(alias, statements.release_expired(table), [run.pk])
    return None


def _duplicate(wish: _Wish, held: Sequence[Any]) -> Enqueued:
    run = wish.table.build(wish.table.alias, held[1:])
    return Enqueued(run, False, "duplicate", differing=_differing(wish, run))


def _holder_of_lock(wish: _Wish) -> Enqueued | None:
    table, alias = wish.table, wish.table.alias
    if wish.run.lock_key is None:
        return None
    for row in execute(alias, statements.holder_of_lock(table), [wish.run.lock_key]):
        run, rerun = table.build(alias, row), False
        if wish.if_locked == RERUN:
            asked = execute(alias, statements.ask_rerun(table), [run.pk])
            if not asked:
                return None
            run, rerun = table.build(alias, asked[0]), True
        return Enqueued(run, False, "locked", rerun, _differing(wish, run))
    return None


def _differing(wish: _Wish, run: Any) -> tuple[str, ...]:
    names = []
    for name in wish.given:
        meta: Any = wish.table.model._meta.get_field(name)
        wanted, has = getattr(wish.run, meta.attname), getattr(run, meta.attname)
        if not hasattr(wanted, "resolve_expression") and meta.to_python(wanted) != has:
            names.append(name)
    return tuple(names)


def _insert_plainly(wish: _Wish) -> Enqueued:
    """The conflict is with a unique constraint of the consumer's own: let its error surface."""
    with transaction.atomic(using=wish.table.alias):
        wish.run.save(using=wish.table.alias, force_insert=True)
    return _created(wish.table, wish.run)
