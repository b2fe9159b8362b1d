"""For which databases silence proves nothing yet, because nobody could have been heard."""

from __future__ import annotations

import logging

from ..conf import settings
from ..lifecycle.watch import deaf_for_a_while
from ..registry import aliases
from .lease import boottime

logger = logging.getLogger("runcontract.scheduler")

OWN_PAUSE = 5.0
"""A gap between two ticks, in seconds, in which this process cannot have listened."""


class Hearing:
    """Two heartbeats of grace after an outage, a restart of Postgres or a pause of our own."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._tick_ended = boottime()

    def begins(self, alias: str) -> None:
        """Only from now on is this database heard."""
        self._since[alias] = boottime()

    def tick_ends(self) -> None:
        """From here to the next tick there is nothing to do but to wait."""
        self._tick_ended = boottime()

    def was_paused(self) -> bool:
        """Whether far more time than a tick's passed since the last one; then all begins anew."""
        if boottime() - self._tick_ended <= max(OWN_PAUSE, 5 * settings().TICK.total_seconds()):
            return False
        for alias in aliases():
            self.begins(alias)
        return True

    def is_good(self, alias: str) -> bool:
        """Whether a run of this database that is silent can be believed to be."""
        grace = 2 * settings().HEARTBEAT
        since = self._since.get(alias)
        if since is not None and boottime() - since < grace.total_seconds():
            return False
        return not deaf_for_a_while(alias, grace)
