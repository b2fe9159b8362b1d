"""Cron: each fire time becomes one row with its outcome, and the run, in one transaction.

UNIQUE (schedule, fire_at) decides between two schedulers: the second insert waits for the first
and then does nothing.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from django.db import transaction

from ..conf import settings
from ..lifecycle.database import execute
from ..lifecycle.enqueue import enqueue
from ..lifecycle.upkeep import database_now
from .schedules import ALL, SKIP, Schedule

logger = logging.getLogger("runcontract.cron")

LATE = timedelta(seconds=60)
"""A fire time this old is not late any more but missed, which `skip` does not run."""

_LAST = "SELECT max(fire_at) FROM runcontract_tick WHERE schedule = %s"
_RECORD = (
    "INSERT INTO runcontract_tick (schedule, fire_at, outcome, job_id, detail, created_at) "
    "VALUES (%s, %s, %s, %s, %s, clock_timestamp()) ON CONFLICT (schedule, fire_at) DO NOTHING "
    "RETURNING id"
)
_OUTCOME = "UPDATE runcontract_tick SET outcome = %s, job_id = %s, detail = %s WHERE id = %s"


def tick(schedule: Schedule) -> int:
    """Fire what is due of one schedule; returns how many runs it enqueued."""
    alias = schedule.table.alias
    now = database_now(alias).astimezone(UTC)
    last = execute(alias, _LAST, [schedule.name])[0][0]
    if last is None:
        execute(alias, _RECORD, [schedule.name, now, "skipped", "", "first seen"])
        return 0
    fired = 0
    for fire_at in schedule.fire_times(last.astimezone(UTC), now):
        outcome = _fire(schedule, fire_at, now)
        if outcome == "later":
            break
        fired += outcome == "enqueued"
    return fired


def _fire(schedule: Schedule, fire_at: datetime, now: datetime) -> str:
    alias = schedule.table.alias
    with transaction.atomic(using=alias):
        rows = execute(alias, _RECORD, [schedule.name, fire_at, "enqueued", "", ""])
        if not rows:
            return "taken"
        if schedule.catch_up == SKIP and now - fire_at > max(LATE, 2 * settings().TICK):
            return _note(alias, rows[0][0], "skipped", "", "missed")
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
        return _note(alias, rows[0][0], answer.reason or "enqueued", answer.run.job_id, detail)


def _note(alias: str, pk: int, outcome: str, job_id: str, detail: str) -> str:
    execute(alias, _OUTCOME, [outcome, job_id, detail, pk])
    logger.info("Tick %s: %s %s", pk, outcome, detail or job_id)
    return outcome


_PRUNE = (
    "DELETE FROM runcontract_tick t WHERE t.fire_at < clock_timestamp() - %s::interval AND EXISTS "
    "(SELECT 1 FROM runcontract_tick n WHERE n.schedule = t.schedule AND n.fire_at > t.fire_at)"
)


def prune_ticks(alias: str, older: timedelta) -> None:
    """Delete old ticks, never a schedule's newest: it says where to go on."""
    execute(alias, _PRUNE, [older])
