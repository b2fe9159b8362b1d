"""Cron: each fire time becomes one row with its outcome, and the run, in one transaction.

UNIQUE (schedule, fire_at) decides between two schedulers: the second insert waits for the first
and then does nothing.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import DataError, IntegrityError, transaction

from ..conf import settings
from ..lifecycle.batches import Between, nothing
from ..lifecycle.database import as_utc, execute
from ..lifecycle.enqueue import enqueue
from .schedules import ALL, SKIP, Schedule

logger = logging.getLogger("runcontract.cron")

LATE = timedelta(seconds=60)
"""A fire time this old is not late any more but missed, which `skip` does not run."""

LOCK_WAIT = "1s"
"""How long a fire time waits for somebody who holds its lock key in an open transaction."""

_LAST = (
    "SELECT clock_timestamp() AT TIME ZONE 'UTC', (SELECT max(fire_at) FROM runcontract_tick "
    "WHERE schedule = %s) AT TIME ZONE 'UTC'"
)
_RECORD = (
    "INSERT INTO runcontract_tick (schedule, fire_at, outcome, job_id, detail, created_at) "
    "VALUES (%s, %s, %s, %s, %s, clock_timestamp()) ON CONFLICT (schedule, fire_at) DO NOTHING "
    "RETURNING id"
)
_OUTCOME = "UPDATE runcontract_tick SET outcome = %s, job_id = %s, detail = %s WHERE id = %s"


def tick(schedule: Schedule, between: Between = nothing) -> int:
    """Fire what is due of one schedule; returns how many runs it enqueued."""
    alias = schedule.table.alias
    now, last = execute(alias, _LAST, [schedule.name])[0]
    now = as_utc(now)
    if last is None:
        execute(alias, _RECORD, [schedule.name, now, "skipped", "", "first seen"])
        return 0
    fired = 0
    for fire_at in schedule.fire_times(as_utc(last), now):
        outcome = _fire(schedule, fire_at, now)
        if outcome == "later":
            break
        fired += outcome == "enqueued"
        between()
    return fired


def _fire(schedule: Schedule, fire_at: datetime, now: datetime) -> str:
    """What became of a fire time. One that the database refuses is recorded, not tried for ever."""
    try:
        return _enqueue(schedule, fire_at, now)
    except (IntegrityError, DataError) as error:
        detail = (str(error).splitlines() or [""])[0]
        params = [schedule.name, fire_at, "failed", "", detail]
        if execute(schedule.table.alias, _RECORD, params):
            logger.error("Schedule %s at %s was refused: %s", schedule.name, fire_at, detail)
        return "failed"


def _enqueue(schedule: Schedule, fire_at: datetime, now: datetime) -> str:
    alias = schedule.table.alias
    with transaction.atomic(using=alias):
        execute(alias, "SELECT set_config('lock_timeout', %s, true)", [LOCK_WAIT])
        rows = execute(alias, _RECORD, [schedule.name, fire_at, "enqueued", "", ""])
        if not rows:
            return "taken"
        if schedule.catch_up == SKIP and now - fire_at > max(LATE, 2 * settings().TICK):
            return _note(schedule, fire_at, rows[0][0], "skipped", "", "missed")
        job_id = f"{schedule.name}:{fire_at:%Y-%m-%dT%H:%M:%SZ}"
        answer = enqueue(
            schedule.model,
            job_id=job_id,
            lock_key=schedule.lock_key,
            lane=schedule.lane,
            **schedule.fields,
        )
        if answer.reason == "locked" and schedule.catch_up == ALL:
            transaction.set_rollback(True, using=alias)
            return "later"
        detail = "" if answer else f"{answer.reason} by {answer.run.job_id}"
        outcome = answer.reason or "enqueued"
        return _note(schedule, fire_at, rows[0][0], outcome, answer.run.job_id, detail)


def _note(
    schedule: Schedule, fire_at: datetime, pk: int, outcome: str, job_id: str, detail: str
) -> str:
    execute(schedule.table.alias, _OUTCOME, [outcome, job_id, detail, pk])
    logger.info("Schedule %s at %s: %s %s", schedule.name, fire_at, outcome, detail or job_id)
    return outcome


_PRUNE = (
    "DELETE FROM runcontract_tick t WHERE t.fire_at < clock_timestamp() - %s::interval AND EXISTS "
    "(SELECT 1 FROM runcontract_tick n WHERE n.schedule = t.schedule AND n.fire_at > t.fire_at)"
)


def prune_ticks(alias: str, older: timedelta) -> None:
    """Delete old ticks, never a schedule's newest: it says where to go on."""
    execute(alias, _PRUNE, [older])
