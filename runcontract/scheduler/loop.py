"""The scheduler's loop: stand by, lead, and at each tick do what is due.

One bad row, table, database or schedule never holds up the others, and nothing ends the loop but
a signal. A step that hangs for good ends the process, so that whoever started it starts another.
"""

from __future__ import annotations

import faulthandler
import logging
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any

from ..conf import settings
from ..lifecycle.database import DatabaseFailure, forget_connections, tidy_connections
from ..lifecycle.sweep import sweep_lost, sweep_unsent
from ..lifecycle.table import Table
from ..lifecycle.upkeep import prune, release_windows
from ..lifecycle.watch import SECOND_LOOK, Watch
from ..registry import aliases, tables
from .cron import prune_ticks, tick
from .epochs import catch_up, current_epochs
from .guard import Guard
from .hearing import Hearing
from .lease import Lease, NotLeading, StandDown
from .said import Said
from .schedules import Schedule, problems, schedules

logger = logging.getLogger("runcontract.scheduler")

RELEASE_EVERY = 5.0
PRUNE_EVERY = 600.0
TICKS_KEPT = timedelta(days=30)
STUCK = 600.0
"""Seconds without the end of any batch after which this process can only be started anew."""

Work = Callable[[Table, Callable[[], None]], Any]


class Stopping(StandDown):
    """A signal came."""


class Scheduler:
    """`run()` until told to stop."""

    def __init__(self) -> None:
        self.lease, self.watch = Lease(), Watch()
        self._said, self._hearing = Said(), Hearing()
        self._guard = Guard(self._said, self._unheard)
        self._schedules: list[Schedule] | None = None
        self._due: dict[str, float] = {}
        self._role = ""
        self._stop = self._watched = False

    def run(self) -> int:
        """Stand by or lead until SIGTERM or SIGINT; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        self._watched = True
        self._hearing.listen()
        logger.info("The scheduler is ready, as %s.", self.lease.holder)
        while not self._stop:
            begun = time.monotonic()
            self.step()
            self._sleep(begun + settings().TICK.total_seconds() - time.monotonic())
        self._hand_over()
        return 0

    def once(self) -> int:
        """One pass of everything, whoever leads, and the second look at what seems silent.

        Returns 0 if everything could be done, otherwise 1.
        """
        self._hearing.listen()
        self.pass_once()
        before = None
        while self.watch.suspects not in (0, before):
            before = self.watch.suspects
            time.sleep(SECOND_LOOK)
            self._each_table("reap", self._reap)
        return int(bool(self._said))

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
        faulthandler.cancel_dump_traceback_later()
        logger.info("The scheduler has ended.")

    # A step.

    def step(self) -> None:
        """Stand by, or lead and make a pass. Whatever it raises is said, and is no end."""
        self._live_on()
        if self._hearing.was_paused():
            logger.warning("This scheduler was paused; nobody is reaped for that silence.")
            self.watch.forget()
        try:
            if self._lead():
                self.pass_once()
        except Stopping:
            logger.info("Stopping between two batches.")
        except NotLeading:
            logger.warning("The lease is lost; standing by.")
            self.watch.forget()
        except DatabaseFailure as error:
            self._lose_lease(error)
        except Exception as error:  # noqa: BLE001 - said, and the next tick tries again
            self._said.fails("the scheduler", error)
        else:
            self._said.over("the scheduler")
        tidy_connections(idle=True)

    def _lead(self) -> bool:
        """Whether this tick is ours.

        With the lease's database away, every scheduler does what it can with the others.
        """
        try:
            leads = self.lease.leading or self.lease.take()
            if leads:
                self.lease.keep()
        except DatabaseFailure as error:
            self._lose_lease(error)
            return self._guard.is_away(self.lease.alias)
        self._said.over("the lease")
        self._guard.answered(self.lease.alias)
        self._tell(f"Leading, term {self.lease.term}." if leads else "Standing by.")
        return leads

    def _lose_lease(self, error: Exception) -> None:
        self.lease.lose()
        self._guard.failed("the lease", self.lease.alias, error)

    def _tell(self, role: str) -> None:
        if role != self._role:
            self._role = role
            logger.info("%s", role)

    def pass_once(self) -> None:
        """Everything that is due now."""
        if self.lease.leading:
            self._each_table("epochs", partial(catch_up, self.lease, current_epochs()))
        for item in self._sound_schedules():
            self._do(f"schedule {item.name}", item.table.alias, partial(tick, item, self._go_on))
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
                self._do(f"ticks of {alias}", alias, partial(prune_ticks, alias, TICKS_KEPT))

    def _is_due(self, what: str, every: float) -> bool:
        if time.monotonic() < self._due.get(what, 0.0):
            return False
        self._due[what] = time.monotonic() + every
        return True

    def _sound_schedules(self) -> list[Schedule]:
        if self._schedules is None:
            self._schedules = [item for item in schedules() if item.problem() is None]
            for problem in problems():
                self._said.begins(problem, problem)
        return self._schedules

    def _each_table(self, what: str, work: Work) -> None:
        for table in tables():
            self._do(f"{what} of {table.label}", table.alias, partial(work, table, self._go_on))

    def _reap(self, table: Table, between: Callable[[], None]) -> None:
        if self._hearing.is_good(table.alias):
            self.watch.reap(table, between)

    def _unheard(self, alias: str) -> None:
        self._hearing.begins(alias)
        self.watch.forget(alias)

    def _do(self, what: str, alias: str, work: Callable[[], Any]) -> None:
        self._guard.do(what, alias, work)
        self._go_on()

    def _go_on(self) -> None:
        """Between two batches: alive, not told to stop, still leading. Raises StandDown."""
        self._live_on()
        if self._stop:
            raise Stopping
        if self.lease.leading:
            self.lease.keep()

    def _live_on(self) -> None:
        if self._watched:
            faulthandler.dump_traceback_later(STUCK, exit=True)


def _sweep_lost(table: Table, between: Callable[[], None]) -> None:
    sweep_lost(table, settings().SWEEP, between)
