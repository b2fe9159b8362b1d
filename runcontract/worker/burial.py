"""What a new child does first: settle the runs of its dead predecessor.

The supervisor never runs consumer code, so it hands the lost runs to the child that replaces the
dead one; each is settled on its own, `on_failed` included.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..contract.errors import RunError
from ..contract.states import Failure
from ..exceptions import LeaseLost
from ..lifecycle.database import DatabaseFailure, forget_connections
from ..lifecycle.hooks import HOOK_SECONDS
from ..lifecycle.patience import patience
from ..lifecycle.table import table_at
from ..lifecycle.transitions import reap
from .reports import Hold

logger = logging.getLogger("runcontract.worker")


@dataclass(frozen=True, slots=True)
class Obituary:
    """A run whose process is dead, and what became of it."""

    hold: Hold
    kind: Failure
    message: str
    tries: int = 0


def bury(obituaries: Iterable[Obituary], stopping: Callable[[], bool]) -> None:
    """Settle each; waits for a lost database until somebody wants this process to stop."""
    for obituary in obituaries:
        while not _bury_one(obituary) and not stopping():
            time.sleep(1.0)


def _bury_one(obituary: Obituary) -> bool:
    hold, table = obituary.hold, table_at(obituary.hold.label)
    if table is None:
        return True
    error = RunError("WorkerLost", obituary.message, "", 1, str(obituary.kind))
    try:
        with patience(2 * HOOK_SECONDS):
            reap(table, hold.pk, hold.lease, error, kind=obituary.kind)
    except LeaseLost:
        logger.info("%s: somebody else has settled it.", hold)
    except DatabaseFailure:
        forget_connections()
        return False
    except Exception:
        logger.exception("%s: could not be settled; the watchdog will.", hold)
    else:
        logger.warning("%s: %s", hold, obituary.message)
    return True
