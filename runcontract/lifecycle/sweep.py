"""Sweep: dispatch again what was not sent, or whose message is lost.

Each statement is bounded and repeated until nothing is left; rows that others hold are skipped. A
batch is stamped and sent in one transaction: what Redis did not take is not stamped either. Two of
these at once are harmless: the rows decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from ..contract.address import Address
from ..exceptions import TransportUnavailable
from ..transport import breaker_of, head, lanes, lanes_by_server
from ..transport.connection import UNHURRIED
from . import statements
from .batches import BATCH, Between, nothing
from .database import DatabaseFailure, as_utc, database_now, execute
from .dispatch import dispatch, parcel
from .table import Table, table_at


def sweep_unsent(table: Table, between: Between = nothing) -> int:
    """Dispatch what is due and was never sent, retries whose time has come among it."""
    return sum(
        _send_batches(table, names, statements.sweep_unsent(table), [], between)[0]
        for names in lanes_by_server()
    )


def sweep_lost(table: Table, grace: timedelta, between: Between = nothing) -> int:
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
            which = [before - grace]
            statement = statements.sweep_lost(table)
            sent += _send_batches(table, [lane], statement, which, between)[0]
    return sent


def sweep_everything(
    table: Table, names: Sequence[str], between: Between = nothing
) -> tuple[int, bool]:
    """Dispatch again whatever is due in these lanes, because their server lost its memory.

    Returns how many, and whether the server took them all.
    """
    moment = database_now(table.alias)
    return _send_batches(table, names, statements.sweep_lost(table), [moment], between)


def _sent_before(table: Table, lane: str) -> datetime | None:
    message = head(lane)
    if message is None:
        return database_now(table.alias)
    address = Address.parse(message)
    owner = table_at(address.label) if address else None
    if address is None or owner is None or not owner.accepts(address.pk):
        return None
    try:
        rows = execute(owner.alias, statements.sent_at(owner), [address.pk, address.lease])
    except DatabaseFailure:
        if owner.alias == table.alias:
            raise
        return None  # another database is away, which is no fault of this one
    return as_utc(rows[0][0]) if rows else None


def _send_batches(
    table: Table, names: Sequence[str], statement: str, which: list[Any], between: Between
) -> tuple[int, bool]:
    total = 0
    while not breaker_of(names[0]).open:
        done, sent = _send_batch(table, statement, [list(names), *which, BATCH])
        if not sent:
            break
        total += done
        if done < BATCH:
            return total, True
        between()
    return total, False


def _send_batch(table: Table, statement: str, params: list[Any]) -> tuple[int, bool]:
    with transaction.atomic(using=table.alias):
        rows = execute(table.alias, statement, params)
        sent = not rows or dispatch(_parcels(table, rows), patience=UNHURRIED)
        if not sent:
            transaction.set_rollback(True, using=table.alias)
    return len(rows), sent


def _parcels(table: Table, rows: Iterable[Sequence[Any]]) -> Iterable[Any]:
    return (parcel(table, *row) for row in rows)
