"""Upkeep: sweep what was not sent or got lost, release windows, prune by policy.

Each statement is bounded and repeated until nothing is left; rows that others hold are skipped.
Two of these at once are harmless: the rows decide.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError, RestrictedError

from ..contract.address import Address
from ..contract.states import TERMINAL
from ..exceptions import TransportUnavailable
from ..transport import breaker_of, head, lanes
from . import statements
from .database import execute
from .dispatch import dispatch, parcel
from .table import Table, table_at

logger = logging.getLogger("runcontract.upkeep")

BATCH = 1000
_PRUNABLE: dict[str, Any] = {
    "state__in": [str(state) for state in TERMINAL],
    "released_at__isnull": False,
}
PATIENCE = 3.0
"""Seconds for Redis to take a batch: nobody waits for the scheduler."""


def sweep_unsent(table: Table) -> int:
    """Dispatch what is due and was never sent, retries whose time has come among it."""
    return sum(
        _send_batches(table, lane, statements.sweep_unsent(table), [])
        for lane in lanes()
        if not breaker_of(lane).open
    )


def sweep_lost(table: Table, grace: timedelta) -> int:
    """Dispatch again what was sent before the head of its lane, less the grace, and still waits.

    A lane is first in, first out, so the message of such a run is gone. With an empty lane it is
    every run sent longer ago than the grace. A head that stands for no queued run tells nothing.
    """
    sent = 0
    for lane in lanes():
        try:
            before = _sent_before(table, lane)
        except TransportUnavailable:
            continue
        if before is not None:
            sent += _send_batches(table, lane, statements.sweep_lost(table), [before - grace])
    return sent


def sweep_everything(table: Table, names: Iterable[str]) -> int:
    """Dispatch again whatever is due in these lanes, because their server lost its memory."""
    moment = database_now(table.alias)
    statement = statements.sweep_lost(table)
    return sum(_send_batches(table, lane, statement, [moment]) for lane in names)


def database_now(alias: str) -> datetime:
    """The clock that counts."""
    return execute(alias, "SELECT clock_timestamp()")[0][0]  # type: ignore[no-any-return]


def _sent_before(table: Table, lane: str) -> datetime | None:
    message = head(lane)
    if message is None:
        return database_now(table.alias)
    address = Address.parse(message)
    owner = table_at(address.label) if address else None
    if address is None or owner is None or not owner.accepts(address.pk):
        return None
    rows = execute(owner.alias, statements.sent_at(owner), [address.pk, address.lease])
    return rows[0][0] if rows else None


def _send_batches(table: Table, lane: str, statement: str, which: list[Any]) -> int:
    total = 0
    while True:
        rows = execute(table.alias, statement, [[lane], *which, BATCH])
        total += len(rows)
        sent = dispatch((parcel(table, *row) for row in rows), patience=PATIENCE)
        if len(rows) < BATCH or not sent:
            return total


def release_windows(table: Table) -> int:
    """Free the job_ids of terminal runs whose window is over."""
    return _repeat(lambda: len(execute(table.alias, statements.release_windows(table), [BATCH])))


def prune(table: Table) -> int:
    """Delete terminal, released runs older than the policy's `retain`; 0 where it has none.

    Goes through the ORM, so that the consumer's own on_delete rules hold. A row that a foreign
    key protects is left, and does not hold up the others.
    """
    retain = table.policy.retain
    if retain is None:
        return 0
    total, after = 0, None
    while True:
        keys = _prunable(table, retain, after)
        total += _delete(table, keys)
        if len(keys) < BATCH:
            return total
        after = keys[-1]


def _prunable(table: Table, retain: timedelta, after: Any) -> list[Any]:
    old = table.model._base_manager.using(table.alias).filter(
        **_PRUNABLE, finished_at__lt=database_now(table.alias) - retain
    )
    if after is not None:
        old = old.filter(pk__gt=after)
    return list(old.order_by("pk").values_list("pk", flat=True)[:BATCH])


def _delete(table: Table, keys: list[Any]) -> int:
    rows = table.model._base_manager.using(table.alias)
    try:
        with transaction.atomic(using=table.alias):
            execute(table.alias, "SET CONSTRAINTS ALL IMMEDIATE")
            locked = rows.filter(pk__in=keys, **_PRUNABLE).select_for_update(skip_locked=True)
            mine = list(locked.values_list("pk", flat=True))
            rows.filter(pk__in=mine).delete()
            return len(mine)
    except (ProtectedError, RestrictedError, IntegrityError):
        if len(keys) == 1:
            logger.info("%s %s is protected by a foreign key; not pruned.", table.label, keys[0])
            return 0
    return sum(_delete(table, [key]) for key in keys)


def _repeat(step: Callable[[], int]) -> int:
    total = 0
    while True:
        done = step()
        total += done
        if done < BATCH:
            return total
