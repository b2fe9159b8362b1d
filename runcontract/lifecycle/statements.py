"""Every statement that writes a run. No other module writes a contract column.

Each move is one UPDATE whose WHERE repeats the facts that its caller relied on, so a worker that
lost its lease changes nothing: zero rows is a refusal. All times are the database's own and mean
the moment of the statement: `clock_timestamp()` where written, `statement_timestamp()` where
compared, because only that one can be the condition of an index scan.
"""

from __future__ import annotations

from functools import cache

from .table import Table

NOW = "clock_timestamp()"
DUE = "(next_retry_at IS NULL OR next_retry_at <= statement_timestamp())"
HELD = "state = 'running' AND lease = %s"
ERROR = f"last_error = %s::jsonb || jsonb_build_object('at', {NOW}), fingerprint = %s"
ENDED = f"finished_at = {NOW}, held_until = {NOW} + %s::interval, dispatched_at = NULL"
OVER = (
    "state IN ('succeeded', 'failed') AND released_at IS NULL "
    "AND held_until <= statement_timestamp()"
)
RELEASED = "worker = '', heartbeat_at = NULL"


def _count(counter: str) -> str:
    """The counter of that name in `stats`, one higher."""
    return f"jsonb_build_object('{counter}', COALESCE((stats->>'{counter}')::int, 0) + 1)"


def _due(table: Table) -> str:
    return DUE if table.counts else "true"


def _started(table: Table) -> str:
    counter = "attempts = attempts + 1, next_retry_at = NULL, " if table.counts else ""
    return (
        f"state = 'running', lease = {table.name}.lease + 1, {counter}worker = %s, "
        f"heartbeat_at = {NOW}, started_at = {NOW}, rerun_requested = false"
    )


@cache
def claim(table: Table) -> str:
    """worker, pk, lease -> the row."""
    return (
        f"UPDATE {table.name} SET {_started(table)} WHERE {table.pk} = %s "
        f"AND state = 'queued' AND lease = %s AND {_due(table)} RETURNING {table.columns}"
    )


@cache
def claim_waiting(table: Table) -> str:
    """lanes, worker -> the row that has waited longest in the first lane that has one.

    A look at the index for each lane in turn, until one has a row: a backlog is never sorted.
    """
    return (
        f"WITH pick AS MATERIALIZED (SELECT first.pk FROM unnest(%s::text[]) AS wanted(lane), "
        f"LATERAL (SELECT {table.pk} AS pk FROM {table.name} "
        f"WHERE state = 'queued' AND lane = wanted.lane AND {_due(table)} "
        f"ORDER BY dispatched_at, {table.pk} LIMIT 1 FOR UPDATE SKIP LOCKED) AS first LIMIT 1) "
        f"UPDATE {table.name} SET {_started(table)} FROM pick "
        f"WHERE {table.name}.{table.pk} = pick.pk RETURNING {table.columns}"
    )


@cache
def read(table: Table) -> str:
    """pk -> the row."""
    return f"SELECT {table.columns} FROM {table.name} WHERE {table.pk} = %s"


@cache
def read_claimed(table: Table) -> str:
    """worker -> the rows that run under this name."""
    return f"SELECT {table.columns} FROM {table.name} WHERE state = 'running' AND worker = %s"


@cache
def beat(table: Table) -> str:
    """pks, leases -> pk, lease of each row whose pulse was written.

    NO KEY UPDATE, so that a job that inserts rows which refer to its own run does not stop its
    pulse; rows locked by the job's own transaction are skipped, and nobody can reap those.
    """
    return (
        f"WITH alive AS MATERIALIZED (SELECT r.{table.pk} AS pk FROM {table.name} r "
        f"JOIN unnest(%s, %s::bigint[]) AS mine(pk, lease) "
        f"ON r.{table.pk} = mine.pk AND r.lease = mine.lease "
        f"WHERE r.state = 'running' FOR NO KEY UPDATE OF r SKIP LOCKED) "
        f"UPDATE {table.name} SET heartbeat_at = {NOW} FROM alive "
        f"WHERE {table.name}.{table.pk} = alive.pk RETURNING alive.pk, {table.name}.lease"
    )


@cache
def still_running(table: Table) -> str:
    """pks -> pk, lease, cancel_requested of those that run."""
    return (
        f"SELECT {table.pk}, lease, cancel_requested FROM {table.name} "
        f"WHERE {table.pk} = ANY(%s) AND state = 'running'"
    )


@cache
def held_by(table: Table) -> str:
    """workers -> pk, lease, worker of what runs under these names."""
    return (
        f"SELECT {table.pk}, lease, worker FROM {table.name} "
        f"WHERE state = 'running' AND worker = ANY(%s)"
    )


@cache
def note(table: Table) -> str:
    """stats, pk, lease: the live step stats and the progress."""
    return (
        f"UPDATE {table.name} SET stats = stats || %s::jsonb "
        f"WHERE {table.pk} = %s AND {HELD} RETURNING cancel_requested"
    )


@cache
def next_attempt(table: Table) -> str:
    """error, fingerprint, stats, pk, lease, the attempt just ended."""
    counter, ended = "attempts = attempts + 1, ", "attempts = %s"
    stats = "stats || %s::jsonb"
    if not table.counts:
        counter, ended = "", "COALESCE((stats->>'repeats')::int, 0) + 1 = %s"
        stats = f"stats || %s::jsonb || {_count('repeats')}"
    return (
        f"UPDATE {table.name} SET {counter}{ERROR}, stats = {stats} "
        f"WHERE {table.pk} = %s AND {HELD} AND {ended} AND NOT cancel_requested "
        f"RETURNING {table.pk}"
    )


@cache
def succeed(table: Table) -> str:
    """hold, stats, pk, lease; not where a rerun was asked for, which takes a transaction."""
    return f"{_succeed(table)} AND NOT rerun_requested RETURNING {table.pk}"


@cache
def succeed_and_rerun(table: Table) -> str:
    """hold, stats, pk, lease -> rerun_requested."""
    return f"{_succeed(table)} RETURNING rerun_requested"


def _succeed(table: Table) -> str:
    return (
        f"UPDATE {table.name} SET state = 'succeeded', {ENDED}, stats = stats || %s::jsonb "
        f"WHERE {table.pk} = %s AND {HELD}"
    )


@cache
def fail(table: Table) -> str:
    """failure, error, fingerprint, hold, stats, pk, lease -> rerun_requested."""
    return (
        f"UPDATE {table.name} SET state = 'failed', failure = %s, {ERROR}, {ENDED}, "
        f"stats = stats || %s::jsonb WHERE {table.pk} = %s AND {HELD} RETURNING rerun_requested"
    )


@cache
def defer(table: Table) -> str:
    """pause, error, fingerprint, stats, pk, lease."""
    return (
        f"UPDATE {table.name} SET state = 'queued', next_retry_at = {NOW} + %s::interval, "
        f"dispatched_at = NULL, {ERROR}, {RELEASED}, "
        f"stats = stats || %s::jsonb || {_count('deferred')} "
        f"WHERE {table.pk} = %s AND {HELD} AND NOT cancel_requested RETURNING {table.pk}"
    )


@cache
def give_back(table: Table) -> str:
    """pk, lease -> pk, lease, lane, job_id. The attempt is refunded, the run is due at once."""
    counter = "attempts = GREATEST(attempts - 1, 0), next_retry_at = NULL, " if table.counts else ""
    return (
        f"UPDATE {table.name} SET state = 'queued', lease = lease + 1, {counter}"
        f"dispatched_at = {NOW}, {RELEASED}, stats = stats || {_count('given_back')} "
        f"WHERE {table.pk} = %s AND {HELD} AND NOT cancel_requested "
        f"RETURNING {table.pk}, lease, lane, job_id"
    )


@cache
def call_back(table: Table) -> str:
    """pk, lease -> pk, lease, lane, job_id of a queued run whose address is void from now on."""
    return (
        f"UPDATE {table.name} SET lease = lease + 1, dispatched_at = {NOW} "
        f"WHERE {table.pk} = %s AND state = 'queued' AND lease = %s "
        f"RETURNING {table.pk}, lease, lane, job_id"
    )


@cache
def suspects(table: Table) -> str:
    """stale_after, heartbeat -> pk, lease, pulse, worker, ahead of what is silent or ahead.

    Not of a row that is locked: its pulse could not be written, and once it is free it has until
    the second look to be heard.
    """
    return (
        f"SELECT {table.pk}, lease, heartbeat_at AT TIME ZONE 'UTC', worker, "
        f"heartbeat_at > statement_timestamp() FROM {table.name} "
        f"WHERE state = 'running' AND (heartbeat_at < statement_timestamp() - %s::interval "
        f"OR heartbeat_at > statement_timestamp() + %s::interval) FOR NO KEY UPDATE SKIP LOCKED"
    )


@cache
def reap_known(table: Table) -> str:
    """pk, lease -> the row, locked, of a run whose worker is known to be dead."""
    return (
        f"SELECT {table.columns} FROM {table.name} WHERE {table.pk} = %s AND {HELD} "
        f"FOR NO KEY UPDATE"
    )


@cache
def reap_silent(table: Table) -> str:
    """pk, lease, heartbeat_at -> the row, locked; nothing if it is locked or has moved."""
    return (
        f"SELECT {table.columns} FROM {table.name} WHERE {table.pk} = %s AND {HELD} "
        f"AND heartbeat_at = %s FOR NO KEY UPDATE SKIP LOCKED"
    )


@cache
def reap_fail(table: Table, counter: str) -> str:
    """failure, error, fingerprint, hold, pk, lease -> rerun_requested."""
    return (
        f"UPDATE {table.name} SET state = 'failed', failure = %s, lease = lease + 1, {ERROR}, "
        f"{ENDED}, stats = stats || {_count(counter)} "
        f"WHERE {table.pk} = %s AND {HELD} RETURNING rerun_requested"
    )


@cache
def reap_retry(table: Table, counter: str) -> str:
    """error, fingerprint, pause, pk, lease. A model without a deferred start is due at once."""
    later = f"next_retry_at = {NOW} + %s::interval, " if table.counts else ""
    return (
        f"UPDATE {table.name} SET state = 'queued', lease = lease + 1, {ERROR}, {later}"
        f"dispatched_at = NULL, {RELEASED}, stats = stats || {_count(counter)} "
        f"WHERE {table.pk} = %s AND {HELD} AND NOT cancel_requested RETURNING {table.pk}"
    )


@cache
def add_to_error(table: Table) -> str:
    """more, pk: adds to the last_error that this very transaction wrote."""
    return (
        f"UPDATE {table.name} SET last_error = COALESCE(last_error, '{{}}'::jsonb) || %s::jsonb "
        f"WHERE {table.pk} = %s"
    )


@cache
def cancel_queued(table: Table) -> str:
    """error, fingerprint, hold, pk, lease -> the row."""
    return (
        f"UPDATE {table.name} SET state = 'failed', failure = 'cancelled', {ERROR}, {ENDED} "
        f"WHERE {table.pk} = %s AND state = 'queued' AND lease = %s RETURNING {table.columns}"
    )


@cache
def ask_cancel(table: Table) -> str:
    """pk"""
    return (
        f"UPDATE {table.name} SET cancel_requested = true "
        f"WHERE {table.pk} = %s AND state = 'running' RETURNING {table.pk}"
    )


@cache
def ask_rerun(table: Table) -> str:
    """pk -> the row. Also of a queued holder, so that its claim waits for the caller's commit."""
    return (
        f"UPDATE {table.name} SET rerun_requested = true "
        f"WHERE {table.pk} = %s AND state IN ('queued', 'running') RETURNING {table.columns}"
    )


@cache
def redo(table: Table) -> str:
    """pk -> the row. It meets the two unique constraints like an enqueue.

    The lease grows, for the message of a run that was cancelled in its lane may still be there.
    """
    counter = "attempts = 0, next_retry_at = NULL, " if table.counts else ""
    counters = "'{lost,timeouts,given_back,deferred,repeats,steps,progress}'::text[]"
    return (
        f"UPDATE {table.name} SET state = 'queued', failure = '', lease = lease + 1, {counter}"
        f"cancel_requested = false, rerun_requested = false, queued_at = {NOW}, "
        f"dispatched_at = {NOW}, started_at = NULL, finished_at = NULL, held_until = NULL, "
        f"released_at = NULL, {RELEASED}, stats = stats - {counters} "
        f"WHERE {table.pk} = %s AND state = 'failed' RETURNING {table.columns}"
    )


@cache
def release_failed(table: Table) -> str:
    """pk: frees the job_id of a failed run at once, so that a new run may take it."""
    return (
        f"UPDATE {table.name} SET released_at = COALESCE(released_at, {NOW}) "
        f"WHERE {table.pk} = %s AND state = 'failed' RETURNING {table.columns}"
    )


@cache
def release_expired(table: Table) -> str:
    """pks: frees the job_ids of terminal runs whose window is over, waiting for those in use."""
    return (
        f"WITH pick AS MATERIALIZED (SELECT {table.pk} AS pk FROM {table.name} "
        f"WHERE {table.pk} = ANY(%s) AND {OVER} ORDER BY {table.pk} FOR NO KEY UPDATE) "
        f"UPDATE {table.name} SET released_at = {NOW} FROM pick "
        f"WHERE {table.name}.{table.pk} = pick.pk"
    )


@cache
def release_windows(table: Table) -> str:
    """limit -> pk of each terminal run whose window was over."""
    return _batch(
        table,
        OVER,
        "held_until",
        f"released_at = {NOW}",
        table.pk,
    )


@cache
def sweep_unsent(table: Table) -> str:
    """lanes, limit -> pk, lease, lane, job_id of what is due and was never sent."""
    return _sweep(table, "dispatched_at IS NULL")


@cache
def sweep_lost(table: Table) -> str:
    """lanes, before, limit -> the same of what was sent before that moment."""
    return _sweep(table, "dispatched_at < %s")


def _sweep(table: Table, which: str) -> str:
    """The rows come in the order in which they were sent before, which UPDATE alone cannot say."""
    columns = ", ".join(f"{table.name}.{name}" for name in ("lease", "lane", "job_id"))
    return (
        f"WITH pick AS MATERIALIZED (SELECT {table.pk} AS pk, dispatched_at AS sent "
        f"FROM {table.name} WHERE state = 'queued' AND lane = ANY(%s) AND {which} "
        f"AND {_due(table)} ORDER BY lane, dispatched_at, {table.pk} LIMIT %s "
        f"FOR NO KEY UPDATE SKIP LOCKED), "
        f"moved AS (UPDATE {table.name} SET dispatched_at = {NOW} FROM pick "
        f"WHERE {table.name}.{table.pk} = pick.pk RETURNING pick.pk, pick.sent, {columns}) "
        f"SELECT pk, lease, lane, job_id FROM moved ORDER BY sent, pk"
    )


def _batch(table: Table, which: str, order: str, change: str, returned: str) -> str:
    """A bounded UPDATE: the rows are picked and locked first, those that others hold are left."""
    columns = ", ".join(f"{table.name}.{column.strip()}" for column in returned.split(","))
    return (
        f"WITH pick AS MATERIALIZED (SELECT {table.pk} AS pk FROM {table.name} WHERE {which} "
        f"ORDER BY {order}, {table.pk} LIMIT %s FOR NO KEY UPDATE SKIP LOCKED) "
        f"UPDATE {table.name} SET {change} FROM pick "
        f"WHERE {table.name}.{table.pk} = pick.pk RETURNING {columns}"
    )


@cache
def sent_at(table: Table) -> str:
    """pk, lease -> dispatched_at of a queued row that was sent."""
    return (
        f"SELECT dispatched_at AT TIME ZONE 'UTC' FROM {table.name} "
        f"WHERE {table.pk} = %s AND lease = %s AND state = 'queued' AND dispatched_at IS NOT NULL"
    )


@cache
def holder_of_job_id(table: Table) -> str:
    """job_id -> whether its window is over, then the row."""
    return f"{_holders_of_job_ids(table)} job_id = %s AND released_at IS NULL"


@cache
def holders_of_job_ids(table: Table) -> str:
    """job_ids -> the same of each that is held."""
    return f"{_holders_of_job_ids(table)} job_id = ANY(%s) AND released_at IS NULL"


def _holders_of_job_ids(table: Table) -> str:
    return (
        f"SELECT COALESCE(held_until <= statement_timestamp(), false), {table.columns} "
        f"FROM {table.name} WHERE"
    )


@cache
def holder_of_lock(table: Table) -> str:
    """lock_key -> the row."""
    return (
        f"SELECT {table.columns} FROM {table.name} "
        f"WHERE lock_key = %s AND state IN ('queued', 'running')"
    )


@cache
def holders_of_locks(table: Table) -> str:
    """lock_keys -> the row of each that is held."""
    return (
        f"SELECT {table.columns} FROM {table.name} "
        f"WHERE lock_key = ANY(%s) AND state IN ('queued', 'running')"
    )
