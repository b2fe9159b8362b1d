"""How the scheduler learns that a Redis server has lost its memory."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

from ..exceptions import TransportUnavailable
from ..lifecycle.batches import Between
from ..lifecycle.sweep import sweep_everything
from ..lifecycle.table import Table
from ..transport import epoch, lanes_by_server, server_of, start_epoch
from .lease import Lease

logger = logging.getLogger("runcontract.scheduler")


Epoch = tuple[list[str], str, str]
"""The lanes of a Redis server, a short name for it, and its epoch."""


def current_epochs() -> list[Epoch]:
    """The epoch of each server that answers; one that has none begins a new one.

    The new epoch goes to Redis first, then the dispatch, then the lease row: a leader that dies in
    between leaves the work to the next.
    """
    found = []
    for names in lanes_by_server():
        server = hashlib.sha256(server_of(names[0]).encode()).hexdigest()[:16]
        try:
            found.append((names, server, epoch(names[0]) or start_epoch(names[0])))
        except TransportUnavailable:
            continue
    return found


def catch_up(lease: Lease, epochs: Sequence[Epoch], table: Table, between: Between) -> None:
    """Dispatch everything due of a table to each server that began anew."""
    for names, server, current in epochs:
        key = f"{server} {table.label}"
        if lease.epochs.get(key) == current:
            continue
        count, complete = sweep_everything(table, names, between)
        if count:
            logger.warning(
                "A Redis server begins anew; %d due runs of %s were dispatched again.",
                count,
                table.label,
            )
        if complete:
            lease.remember_epoch(key, current)
