"""How the scheduler learns that a Redis server has lost its memory."""

from __future__ import annotations

import hashlib
import logging

from ..exceptions import TransportUnavailable
from ..lifecycle.upkeep import sweep_everything
from ..registry import tables
from ..transport import epoch, lanes, one_lane_per_server, server_of, start_epoch
from .lease import Lease

logger = logging.getLogger("runcontract.scheduler")


def check_epochs(lease: Lease) -> int:
    """Dispatch everything due of each server whose epoch is not the remembered one.

    The new epoch goes to Redis first, then the dispatch, then the lease row: a leader that dies in
    between leaves the work to the next.
    """
    sent = 0
    for lane in one_lane_per_server():
        server = server_of(lane)
        name = hashlib.sha256(server.encode()).hexdigest()[:16]
        try:
            current = epoch(lane)
            if current is not None and current == lease.epochs.get(name):
                continue
            current = start_epoch(lane) if current is None else current
        except TransportUnavailable:
            continue
        behind = [other for other in lanes() if server_of(other) == server]
        count = sum(sweep_everything(table, behind) for table in tables())
        if name in lease.epochs or count:
            logger.warning("A Redis server begins anew; %d due runs were dispatched again.", count)
        lease.remember_epoch(name, current)
        sent += count
    return sent
