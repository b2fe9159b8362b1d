"""Runs in whatever state a test wants to look at, written as no transition would."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connections

from runcontract.lifecycle.table import table_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""A moment long ago; rows are told apart by their distance to it."""


def row(model: Any, state: str = "failed", minute: float = 0, **values: Any) -> Any:
    """One run in this state, which it reached `minute` minutes after NOON."""
    moment = NOON + timedelta(minutes=minute)
    columns: dict[str, Any] = {"state": state, "queued_at": moment}
    if state != "queued":
        columns["started_at"] = moment
    if state == "running":
        columns |= {"lease": 1, "worker": "w", "heartbeat_at": moment}
    if state in ("failed", "succeeded"):
        columns |= {"finished_at": moment, "held_until": moment}
    if state == "failed":
        error = {"type": "ValueError", "message": "no", "traceback": "Traceback:\n  no"}
        columns |= {"failure": "permanent", "last_error": error}
    return model.objects.create(**(columns | values))


def many(model: Any, number: int, state: str = "failed") -> None:
    """So many failed or succeeded runs, one each second after NOON, by one statement."""
    table = table_of(model)
    failure = "permanent" if state == "failed" else ""
    statement = f"""
        INSERT INTO {table.name} (job_id, lane, state, failure, lease, worker, fingerprint, stats,
            rerun_requested, cancel_requested, finished_at, held_until, attempts, last_error,
            task, args, hook, progress, note)
        SELECT 'many:' || n, 'default', %s, %s, 1, '', '', '{{}}', false, false,
            moment, moment, 1, jsonb_build_object('type', 'E', 'message', 'm' || n),
            'succeed', '{{}}', '', 0, ''
        FROM generate_series(1, %s) AS n, LATERAL (SELECT %s + n * interval '1 second') AS t(moment)
    """
    with connections[table.alias].cursor() as cursor:
        cursor.execute(statement, [state, failure, number, NOON])
        cursor.execute(f"ANALYZE {table.name}")
