"""Enqueue any number of runs in a few statements, each with its own answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.db.models import Model

from . import statements
from .database import execute
from .enqueue import SKIP, Enqueued, Wish, created, enqueue_one, wish
from .insert import insert
from .table import Table, table_of

CHUNK = 500
"""Rows of one statement."""
ROUNDS = 2
"""The second round is for what an expired holder stood against, which the first released."""

Answers = dict[int, Enqueued]


def bulk_enqueue(
    model: type[Model], rows: Iterable[Mapping[str, Any]], *, if_locked: str = SKIP
) -> list[Enqueued]:
    """Enqueue any number of runs, each a mapping of enqueue's arguments; answers in their order.

    Every row is checked before the first is written. Of rows that stand in each other's way the
    first is created. Rows are inserted sorted, so that two bulk calls cannot deadlock.
    """
    table = table_of(model)
    wishes = [wish(table, **{"if_locked": if_locked, **row}) for row in rows]
    answers: Answers = {}
    for _ in range(ROUNDS):
        _insert_foremost(table, wishes, answers)
        for chunk in _chunks(_left(wishes, answers)):
            _answer_from_journal(table, wishes, chunk, answers)
    for position in _left(wishes, answers):
        answers[position] = enqueue_one(wishes[position])
    return [answers[position] for position in range(len(wishes))]


def _left(wishes: Sequence[Wish], answers: Answers) -> list[int]:
    return [position for position in range(len(wishes)) if position not in answers]


def _chunks(positions: Sequence[int]) -> Iterator[Sequence[int]]:
    return (positions[start : start + CHUNK] for start in range(0, len(positions), CHUNK))


def _insert_foremost(table: Table, wishes: Sequence[Wish], answers: Answers) -> None:
    foremost = _foremost(wishes, _left(wishes, answers))
    for chunk in _chunks(sorted(foremost, key=lambda at: _sort_key(wishes[at].run))):
        positions = {wishes[at].run.job_id: at for at in chunk}
        for run in insert(table, [wishes[at].run for at in chunk]):
            answers[positions[run.job_id]] = created(table, run)


def _foremost(wishes: Sequence[Wish], positions: Iterable[int]) -> Iterator[int]:
    """Those that no earlier one of the same call stands in the way of."""
    taken: set[tuple[str, str]] = set()
    for position in positions:
        run = wishes[position].run
        keys = {("job_id", run.job_id)}
        if run.lock_key is not None:
            keys.add(("lock_key", run.lock_key))
        if not keys & taken:
            yield position
        taken |= keys


def _sort_key(run: Any) -> tuple[str, str]:
    """By lock first: calls that meet at locks, with job_ids of their own, must agree on those."""
    return run.lock_key or "", run.job_id


def _answer_from_journal(
    table: Table, wishes: Sequence[Wish], positions: Sequence[int], answers: Answers
) -> None:
    """Answer what met a holder. What met an expired one, which is released, stays unanswered.

    So does what asks a lock's holder for a rerun, which is a statement of its own.
    """
    asked = [wishes[position] for position in positions]
    held, expired = _held_job_ids(table, [wanted.run.job_id for wanted in asked])
    locked = _held_locks(table, [wanted.run.lock_key for wanted in asked])
    for position, wanted in zip(positions, asked, strict=True):
        job_id, lock_key = wanted.run.job_id, wanted.run.lock_key
        if job_id in held:
            answers[position] = wanted.refused(held[job_id], "duplicate")
        elif lock_key in locked and wanted.if_locked == SKIP:
            answers[position] = wanted.refused(locked[lock_key], "locked")
    if expired:
        execute(table.alias, statements.release_expired(table), [expired])


def _held_job_ids(table: Table, job_ids: Sequence[str]) -> tuple[dict[str, Any], list[Any]]:
    """The holder of each that is held, and the keys of the holders whose window is over."""
    held, expired = {}, []
    for over, *row in execute(table.alias, statements.holders_of_job_ids(table), [list(job_ids)]):
        run = table.build(table.alias, row)
        if over:
            expired.append(run.pk)
        else:
            held[run.job_id] = run
    return held, expired


def _held_locks(table: Table, keys: Sequence[str | None]) -> dict[str | None, Any]:
    wanted = [key for key in keys if key is not None]
    rows = execute(table.alias, statements.holders_of_locks(table), [wanted]) if wanted else []
    runs = (table.build(table.alias, row) for row in rows)
    return {run.lock_key: run for run in runs}
