"""The scheduler's loop: stand by, lead, and at each tick do what is due.

One bad row, table, database or schedule never holds up the others, and nothing ends the loop but
a signal.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any

from ..conf import settings
from ..lifecycle.database import DatabaseFailure, forget_connections, tidy_connections
from ..lifecycle.table import Table
from ..lifecycle.upkeep import prune, release_windows, sweep_lost, sweep_unsent
from ..lifecycle.watch import SECOND_LOOK, Watch, deaf_for_a_while
from ..registry import aliases, tables
from .cron import prune_ticks, tick
from .epochs import check_epochs
from .lease import Lease, NotLeading, _boottime
from .schedules import Schedule, schedules

logger = logging.getLogger("runcontract.scheduler")

RELEASE_EVERY = 5.0
PRUNE_EVERY = 600.0
TICKS_KEPT = timedelta(days=30)
OWN_PAUSE = 5.0
"""A gap between two ticks, in seconds, in which this process cannot have listened."""


def _sweep_lost(table: Table) -> int:
    return sweep_lost(table, settings().SWEEP)


class Scheduler:
    """`run()` until told to stop."""

    def __init__(self) -> None:
        self.lease, self.watch = Lease(), Watch()
        self._stop = False
        self._due: dict[str, float] = {}
        self._away: set[str] = set()
        self._heard_since: dict[str, float] = {}
        self._said: dict[str, str] = {}
        self._last_pass = _boottime()

    def run(self) -> int:
        """Stand by or lead until SIGTERM or SIGINT; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        logger.info("The scheduler is ready, as %s.", self.lease.holder)
        while not self._stop:
            begun = time.monotonic()
            self._step()
            self._sleep(begun + settings().TICK.total_seconds() - time.monotonic())
        self._hand_over()
        return 0

    def once(self) -> int:
        """One pass of everything, whoever leads, and the second look at what seems silent."""
        self._due.clear()
        self.pass_once()
        if self.watch.suspects:
            time.sleep(SECOND_LOOK)
            self._due.clear()
            self._each_table("reap", self._reap)
        return 0

    def _on_stop(self, signum: int, frame: FrameType | None) -> None:
        self._stop = True

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stop and (left := end - time.monotonic()) > 0:
            time.sleep(min(0.1, left))

    def _hand_over(self) -> None:
        try:
            self.lease.release()
        except DatabaseFailure:
            logger.info("The lease could not be released; it ends by itself.")
        forget_connections()
        logger.info("The scheduler has ended.")

    # A step.

    def _step(self) -> None:
        try:
            if self._lead():
                self.pass_once()
        except NotLeading:
            logger.warning("Another scheduler leads now; standing by.")
            self.watch.forget()
        except DatabaseFailure as error:
            self._say("lease", f"The database is away ({type(error).__name__}); waiting for it.")
            forget_connections()
            self.watch.forget()
        else:
            self._say("lease", None)
        tidy_connections(idle=True)

    def _lead(self) -> bool:
        if self.lease.leading:
            self.lease.keep()
            return True
        if not self.lease.take():
            return False
        logger.info("Leading, term %s.", self.lease.term)
        self._last_pass = _boottime()
        return True

    def pass_once(self) -> None:
        """Everything that is due now."""
        self._notice_own_pause()
        self._away.clear()
        if self.lease.leading:
            self._guarded("epochs", None, partial(check_epochs, self.lease))
        self._each_schedule()
        self._each_table("sweep", sweep_unsent)
        if self._is_due("lost", settings().SWEEP.total_seconds()):
            self._each_table("lost", _sweep_lost)
        if self._is_due("reap", min(SECOND_LOOK, settings().HEARTBEAT.total_seconds())):
            self._each_table("reap", self._reap)
        if self._is_due("release", RELEASE_EVERY):
            self._each_table("release", release_windows)
        if self._is_due("prune", PRUNE_EVERY):
            self._each_table("prune", prune)
            for alias in aliases():
                self._guarded(f"ticks {alias}", alias, partial(prune_ticks, alias, TICKS_KEPT))
        self._last_pass = _boottime()

    def _is_due(self, what: str, every: float) -> bool:
        if time.monotonic() < self._due.get(what, 0.0):
            return False
        self._due[what] = time.monotonic() + every
        return True

    def _each_table(self, what: str, work: Callable[[Table], Any]) -> None:
        for table in tables():
            if table.alias not in self._away:
                self._guarded(f"{what} {table.label}", table.alias, partial(work, table))
                self._keep()

    def _each_schedule(self) -> None:
        for item in self._sound(schedules()):
            alias = item.table.alias
            if alias not in self._away:
                self._guarded(f"schedule {item.name}", alias, partial(tick, item))
                self._keep()

    def _keep(self) -> None:
        if self.lease.leading:
            self.lease.keep()

    def _sound(self, every: Iterable[Schedule]) -> list[Schedule]:
        sound = []
        for item in every:
            problem = item.problem() if item.name not in self._said else self._said[item.name]
            self._say(item.name, problem)
            if problem is None:
                sound.append(item)
        return sound

    def _guarded(self, what: str, alias: str | None, work: Callable[[], Any]) -> None:
        """Do one thing; whatever it raises is said once and holds up nothing else."""
        try:
            work()
        except NotLeading:
            raise
        except DatabaseFailure as error:
            if alias is None:
                raise
            self._away.add(alias)
            self._heard_since[alias] = _boottime()
            self._say(alias, f"Database {alias} is away ({type(error).__name__}).")
            forget_connections()
        except Exception as error:
            if self._said.get(what) != repr(error):
                self._said[what] = repr(error)
                logger.exception("%s failed; it is tried again.", what)
        else:
            self._said.pop(what, None)
            if alias is not None:
                self._say(alias, None)

    def _say(self, key: str, message: str | None) -> None:
        """Log a state when it begins, not at each tick."""
        if message is None:
            if self._said.pop(key, None) is not None:
                logger.warning("Over: %s", key)
        elif self._said.get(key) != message:
            self._said[key] = message
            logger.error("%s", message)

    # Reaping, with the grace for what nobody could have heard.

    def _notice_own_pause(self) -> None:
        if _boottime() - self._last_pass > max(OWN_PAUSE, 5 * settings().TICK.total_seconds()):
            logger.warning("This scheduler was paused; nobody is reaped for that silence.")
            self.watch.forget()
            for alias in aliases():
                self._heard_since[alias] = _boottime()

    def _reap(self, table: Table) -> int:
        grace = 2 * settings().HEARTBEAT
        since = self._heard_since.get(table.alias)
        if since is not None and _boottime() - since < grace.total_seconds():
            return 0
        if deaf_for_a_while(table.alias, grace):
            return 0
        return self.watch.reap(table)
