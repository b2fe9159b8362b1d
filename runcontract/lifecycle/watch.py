"""The watchdog's eye: which running runs have fallen silent, and the reaping of those.

A run is reaped by the second look, at least three seconds after a first that saw it stale with
the same lease and the same pulse. A supervisor that could not write because its row was locked,
or because the database was away, has that long to prove that it lives.

A pulse from the future proves nothing about silence: the database's clock was set back, and each
living run has one. It has `stale_after` of the watchdog's own clock to be replaced by another.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ..conf import settings
from ..contract.errors import RunError
from ..contract.states import Failure
from ..exceptions import LeaseLost
from . import statements
from .database import execute
from .table import Table
from .transitions import reap_silent

logger = logging.getLogger("runcontract.watch")

SECOND_LOOK = 3.0
"""Seconds between the look that suspects and the look that reaps."""
LOGGED = 2
"""Failures to reap one run that are logged."""


@dataclass(frozen=True)
class _Suspect:
    lease: int
    pulse: datetime
    since: float
    broken: int = 0
    """How often reaping it failed; after the first time `on_failed` is left out."""


class Watch:
    """Remembers its suspects from one pass to the next. One per process."""

    def __init__(self, clock: Any = time.monotonic) -> None:
        self._clock = clock
        self._suspects: dict[tuple[str, Any], _Suspect] = {}

    @property
    def suspects(self) -> int:
        """How many runs are suspected and wait for the second look."""
        return len(self._suspects)

    def forget(self) -> None:
        """Begin anew: the silence may have been the watchdog's own."""
        self._suspects.clear()

    def reap(self, table: Table) -> int:
        """One look at a table: suspect what is newly silent, reap what still is."""
        now, found = self._clock(), {}
        due: list[tuple[Any, str]] = []
        stale_after = table.policy.stale_after
        limits = [stale_after, settings().HEARTBEAT]
        for row in execute(table.alias, statements.suspects(table), limits):
            pk, lease, pulse, worker, ahead = row
            known = self._suspects.get((table.label, pk))
            if known is None or (known.lease, known.pulse) != (lease, pulse):
                known = _Suspect(lease, pulse, now)
            found[(table.label, pk)] = known
            patience = stale_after.total_seconds() if ahead else SECOND_LOOK
            if now - known.since >= patience:
                due.append((pk, worker))
        others = {key: value for key, value in self._suspects.items() if key[0] != table.label}
        self._suspects = others | found
        return sum(self._reap_one(table, pk, worker) for pk, worker in due)

    def _reap_one(self, table: Table, pk: Any, worker: str) -> bool:
        known = self._suspects[(table.label, pk)]
        last = known.pulse.isoformat()
        message = f"The worker {worker} was lost: its last pulse came at {last}."
        error = RunError("WorkerLost", message, "", 1, str(Failure.STALE))
        try:
            reap_silent(table, pk, known.lease, known.pulse, error, hook=not known.broken)
        except LeaseLost:
            return False
        except Exception:  # one row's trouble is its own, a lost database is everybody's
            execute(table.alias, "SELECT 1")
            if known.broken < LOGGED:
                logger.exception("%s %s could not be reaped; tried again.", table.label, pk)
            self._suspects[(table.label, pk)] = replace(known, broken=known.broken + 1)
            return False
        logger.warning("Reaped %s %s: %s", table.label, pk, message)
        self._suspects.pop((table.label, pk), None)
        return True


def deaf_for_a_while(alias: str, grace: timedelta) -> bool:
    """Whether Postgres itself started within the grace: nobody's pulse could have been heard."""
    rows = execute(
        alias, "SELECT clock_timestamp() - pg_postmaster_start_time() < %s::interval", [grace]
    )
    return bool(rows[0][0])
