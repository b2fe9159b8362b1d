"""Dispatch: hand the addresses of committed rows to Redis.

Nothing here may hurt the caller: with Redis down, slow or read-only the row stays queued and the
sweep sends it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..conf import settings
from ..exceptions import TransportUnavailable
from ..transport import Parcel, lanes, send
from ..transport.connection import QUICK
from ..transport.messages import hint_key
from .table import Table

logger = logging.getLogger("runcontract.dispatch")


def parcel(table: Table, pk: Any, lease: int, lane: str, job_id: str) -> Parcel:
    """The message of a queued row."""
    address = str(table.address(pk, lease))
    if not settings().FAST_PATH:
        return Parcel(lane, address)
    return Parcel(lane, address, hint_key(table.label, job_id), table.policy.hold_succeeded)


def dispatch(parcels: Iterable[Parcel], *, patience: float = QUICK) -> bool:
    """Send now; False if Redis did not take them all, which loses nothing.

    A run whose lane RQ_QUEUES names no more stays in the journal.
    """
    known = set(lanes())
    try:
        send([parcel for parcel in parcels if parcel.lane in known], patience=patience)
    except TransportUnavailable:
        return False
    except Exception:
        logger.exception("A dispatch failed; the sweep will send its runs.")
        return False
    return True


class _Batch:
    """What one transaction, or one savepoint of it, will dispatch when it commits."""

    def __init__(self) -> None:
        self.parcels: list[Parcel] = []

    def __call__(self) -> None:
        dispatch(self.parcels)


def dispatch_on_commit(alias: str, parcels: Iterable[Parcel]) -> None:
    """Dispatch when the transaction on this alias commits; at once where there is none.

    One callback for a transaction, however many runs. It belongs to the savepoint in which it was
    registered, as Django's callbacks do: what is rolled back is never sent.
    Under manual transaction management nothing is sent: the sweep finds the rows.
    """
    connection = connections[alias]
    if not can_dispatch_on_commit(alias):
        return
    batch = _waiting_batch(connection)
    if batch is not None:
        batch.parcels.extend(parcels)
        return
    batch = _Batch()
    batch.parcels.extend(parcels)
    transaction.on_commit(batch, using=alias, robust=True)


def _waiting_batch(connection: BaseDatabaseWrapper) -> _Batch | None:
    """What the innermost savepoint, or the transaction, is to dispatch already."""
    inside = set(connection.savepoint_ids)
    for sids, callback, *_ in reversed(connection.run_on_commit):
        if isinstance(callback, _Batch) and sids == inside:
            return callback
    return None


def can_dispatch_on_commit(alias: str) -> bool:
    """False under manual transaction management, where nobody says when the commit is."""
    connection = connections[alias]
    return bool(connection.in_atomic_block or connection.get_autocommit())
