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
from .batches import Between, nothing
from .database import DatabaseFailure, answers, as_utc, execute
from .table import Table
from .transitions import reap_silent

logger = logging.getLogger("runcontract.watch")

SECOND_LOOK = 3.0
"""Seconds between the look that suspects and the look that reaps."""
PATIENCE = 5.0
"""Seconds that one look spends on reaping, for a consumer's `on_failed` may be slow."""

_Key = tuple[Table, Any]


@dataclass(frozen=True)
class _Suspect:
    lease: int
    pulse: datetime
    since: float
    wait: float
    """Seconds until it is believed. A pulse that is ahead of the clock tells that the clock was
    set back; whoever lives has written another before it could be stale."""


class Watch:
    """Remembers its suspects from one pass to the next. One per process."""

    def __init__(self, clock: Any = time.monotonic) -> None:
        self._clock = clock
        self._suspects: dict[_Key, _Suspect] = {}
        self._refused: dict[_Key, int] = {}

    @property
    def suspects(self) -> int:
        """How many runs are suspected and wait for the second look."""
        return len(self._suspects)

    def forget(self, alias: str | None = None) -> None:
        """Begin anew, with one database or with all: the silence may have been the watchdog's."""
        self._suspects = {
            key: value
            for key, value in self._suspects.items()
            if alias is not None and key[0].alias != alias
        }

    def reap(self, table: Table, between: Between = nothing) -> int:
        """One look at a table: suspect what is newly silent, reap what still is."""
        begun, reaped = self._clock(), 0
        for key, worker in self._look(table, begun):
            if self._clock() - begun > PATIENCE:
                break
            reaped += self._reap_one(key, worker)
            between()
        return reaped

    def _look(self, table: Table, now: float) -> list[tuple[_Key, str]]:
        """Those whose second look this is, with their workers."""
        limits = [table.policy.stale_after, settings().HEARTBEAT]
        found: dict[_Key, _Suspect] = {}
        due = []
        rows = execute(table.alias, statements.suspects(table), limits)
        for pk, lease, beat, worker, ahead in rows:
            key, pulse = (table, pk), as_utc(beat)
            known = self._suspects.get(key)
            if known is None or (known.lease, known.pulse) != (lease, pulse):
                wait = table.policy.stale_after.total_seconds() if ahead else SECOND_LOOK
                known = _Suspect(lease, pulse, now, wait)
            found[key] = known
            if now - known.since >= known.wait:
                due.append((key, worker))
        others = {key: value for key, value in self._suspects.items() if key[0] != table}
        self._suspects = others | found
        return due

    def _reap_one(self, key: _Key, worker: str) -> bool:
        (table, pk), suspect = key, self._suspects[key]
        message = (
            f"The worker {worker} was lost: its last pulse came at {suspect.pulse.isoformat()}."
        )
        error = RunError("WorkerLost", message, "", 1, str(Failure.STALE))
        hook = self._refused.get(key) != suspect.lease
        try:
            reap_silent(table, pk, suspect.lease, suspect.pulse, error, hook=hook)
        except LeaseLost:
            return False
        except Exception as problem:
            if isinstance(problem, DatabaseFailure) and not answers(table.alias):
                raise  # it is away, which is no trouble of this row's own
            if hook:
                logger.exception("%s %s could not be reaped; once more.", table.label, pk)
            self._refused[key] = suspect.lease
            return False
        logger.warning("Reaped %s %s: %s", table.label, pk, message)
        self._refused.pop(key, None)
        del self._suspects[key]
        return True


def deaf_for_a_while(alias: str, grace: timedelta) -> bool:
    """Whether Postgres itself started within the grace: nobody's pulse could have been heard."""
    rows = execute(
        alias, "SELECT clock_timestamp() - pg_postmaster_start_time() < %s::interval", [grace]
    )
    return bool(rows[0][0])
