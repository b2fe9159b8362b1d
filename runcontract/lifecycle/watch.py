"""The watchdog's eye: which running runs have fallen silent, and the reaping of those.

A run is reaped by the second look, at least three seconds after a first that saw it stale with
the same lease and the same pulse. A supervisor that could not write because its row was locked,
or because the database was away, has that long to prove that it lives.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
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


@dataclass(frozen=True)
class _Suspect:
    lease: int
    pulse: datetime
    since: float


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
        due: list[tuple[Any, int, datetime, str]] = []
        limits = [table.policy.stale_after, settings().HEARTBEAT]
        for pk, lease, pulse, worker in execute(table.alias, statements.suspects(table), limits):
            known = self._suspects.get((table.label, pk))
            if known is None or (known.lease, known.pulse) != (lease, pulse):
                known = _Suspect(lease, pulse, now)
            found[(table.label, pk)] = known
            if now - known.since >= SECOND_LOOK:
                due.append((pk, lease, pulse, worker))
        others = {key: value for key, value in self._suspects.items() if key[0] != table.label}
        self._suspects = others | found
        return sum(self._reap_one(table, *suspect) for suspect in due)

    def _reap_one(self, table: Table, pk: Any, lease: int, pulse: datetime, worker: str) -> bool:
        message = f"The worker {worker} was lost: its last pulse came at {pulse.isoformat()}."
        error = RunError("WorkerLost", message, "", 1, str(Failure.STALE))
        try:
            reap_silent(table, pk, lease, pulse, error)
        except LeaseLost:
            return False
        except Exception:
            logger.exception(
                "%s %s could not be reaped; the next pass tries again.", table.label, pk
            )
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
