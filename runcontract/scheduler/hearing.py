"""For which databases silence proves nothing yet, because nobody could have been heard."""

from __future__ import annotations

import threading
import time

from ..conf import settings
from ..lifecycle.watch import deaf_for_a_while
from .lease import boottime

LISTEN_EVERY = 0.5
OWN_PAUSE = 5.0
"""Seconds in which no thread of this process ran: it was stopped, or its machine slept."""


class Hearing:
    """Two heartbeats of grace after an outage, a restart of Postgres or a pause of our own."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._listened_at = self._asked_at = boottime()
        self._paused_at = float("-inf")
        self._lock = threading.Lock()

    def listen(self) -> None:
        """Notice pauses from a thread of its own, which no slow statement holds up."""
        threading.Thread(target=self._listen, daemon=True, name="hearing").start()

    def _listen(self) -> None:
        while True:
            time.sleep(LISTEN_EVERY)
            self._note()

    def _note(self) -> None:
        with self._lock:
            now = boottime()
            if now - self._listened_at > OWN_PAUSE:
                self._paused_at = now
            self._listened_at = now

    def begins(self, alias: str) -> None:
        """Only from now on is this database heard."""
        self._since[alias] = boottime()

    def was_paused(self) -> bool:
        """Whether this process was paused since somebody last asked."""
        self._note()
        last, self._asked_at = self._asked_at, boottime()
        return self._paused_at >= last

    def is_good(self, alias: str) -> bool:
        """Whether a run of this database that is silent can be believed to be."""
        self._note()
        grace = 2 * settings().HEARTBEAT
        since = max(self._since.get(alias, float("-inf")), self._paused_at)
        if boottime() - since < grace.total_seconds():
            return False
        return not deaf_for_a_while(alias, grace)
