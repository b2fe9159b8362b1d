"""The pulse: one heartbeat statement per run table, for the runs of all children.

It comes from another process than the jobs', so a job that never lets go of the GIL keeps its
pulse. A row that is locked is skipped and tried again a second later; a row that is no longer
running under its lease is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..conf import settings
from ..lifecycle import statements
from ..lifecycle.database import execute
from ..lifecycle.table import Table, table_at
from .asking import RETRY, Databases, Unanswered
from .clock import now
from .reports import Hold

logger = logging.getLogger("runcontract.worker")


@dataclass
class Seen:
    """What the database said of the runs that were asked about."""

    cancel: set[Hold] = field(default_factory=set)
    """A cancel was asked."""
    missing: set[Hold] = field(default_factory=set)
    """Not running under this lease: lost, unless its child has ended it meanwhile."""


class Pulse:
    """The heartbeats of one supervisor, and what they tell."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._good: dict[str, float] = {}
        self._next: dict[str, float] = {}
        self._silent: set[str] = set()

    def beat(self, holds: Iterable[Hold]) -> None:
        """Write the pulse of each table that is due."""
        for label, of_table in _by_table(holds).items():
            if now() >= self._next.get(label, 0.0):
                self._beat_table(label, of_table)

    def due_in(self, holds: Iterable[Hold]) -> float:
        """Seconds until the next pulse of the tables that these runs are in."""
        waits = [self._next.get(label, 0.0) - now() for label in {hold.label for hold in holds}]
        return max(0.0, min(waits, default=settings().HEARTBEAT.total_seconds()))

    def trusted_since(self, label: str) -> float:
        """When the last good request for this table was begun; 0 if there was none."""
        return self._good.get(label, 0.0)

    def begin(self, label: str) -> None:
        """A run of this table was claimed just now, which wrote its pulse."""
        first = now() + settings().HEARTBEAT.total_seconds()
        self._next[label] = min(self._next.get(label, first), first)

    def forget(self, labels: Iterable[str]) -> None:
        """Tables of which nothing runs any more have no pulse to be late with."""
        for label in set(self._next) - set(labels):
            del self._next[label]

    def _beat_table(self, label: str, holds: list[Hold]) -> None:
        begun, table = now(), _table(label)
        params = [[hold.pk for hold in holds], [hold.lease for hold in holds]]
        rows = self._ask(table, statements.beat(table), params)
        if rows is None:
            self._next[label] = now() + RETRY
            if label not in self._silent:
                self._silent.add(label)
                logger.warning("The pulse of %s does not get through; trying on.", label)
            return
        if label in self._silent:
            self._silent.discard(label)
            logger.warning("The pulse of %s gets through again.", label)
        self._good[label] = begun
        skipped = len(rows) < len(holds)
        wait = RETRY if skipped else settings().HEARTBEAT.total_seconds()
        self._next[label] = begun + min(wait, settings().HEARTBEAT.total_seconds())

    def look(self, holds: Iterable[Hold]) -> Seen:
        """Ask which of these runs still run under their lease, and which are to be cancelled."""
        seen = Seen()
        for label, of_table in _by_table(holds).items():
            table = _table(label)
            keys = [hold.pk for hold in of_table]
            rows = self._ask(table, statements.still_running(table), [keys])
            if rows is None:
                continue
            running = {(pk, lease): asked for pk, lease, asked in rows}
            for hold in of_table:
                asked = running.get((hold.pk, hold.lease))
                if asked is None:
                    seen.missing.add(hold)
                elif asked:
                    seen.cancel.add(hold)
        return seen

    def running_under(self, labels: Iterable[str], names: list[str]) -> set[tuple[Hold, str]]:
        """What runs under these workers' names, as (claim, name)."""
        found = set()
        for label in labels:
            table = _table(label)
            for pk, lease, name in self._ask(table, statements.held_by(table), [names]) or []:
                found.add((Hold(label, pk, lease), name))
        return found

    def _ask(self, table: Table, statement: str, params: list[Any]) -> list[tuple[Any, ...]] | None:
        """The rows; None if the database did not answer."""
        try:
            return self._databases.ask(table.alias, lambda: execute(table.alias, statement, params))
        except Unanswered:
            return None


def _by_table(holds: Iterable[Hold]) -> Mapping[str, list[Hold]]:
    grouped: dict[str, list[Hold]] = {}
    for hold in holds:
        grouped.setdefault(hold.label, []).append(hold)
    return grouped


def _table(label: str) -> Table:
    table = table_at(label)
    if table is None:
        raise LookupError(label)
    return table
