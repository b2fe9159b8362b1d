"""The supervisor: watches the children, keeps the pulse, enforces deadlines, drains.

It runs no consumer code and holds no database connection while it forks. Everything happens in
one loop of one thread; what could block has its own limit.
"""

from __future__ import annotations

import logging
import os
import select
import signal
from collections.abc import Iterator
from types import FrameType

from ..conf import settings
from ..contract.states import Failure
from ..lifecycle.database import forget_connections
from ..lifecycle.table import table_at
from .asking import Databases
from .burial import Obituary
from .child import ChildOptions
from .clock import now
from .crew import Crew, Member, cause_of_death
from .owed import Owed
from .pulse import Pulse
from .reports import DONE, JOURNAL, RECYCLED, Hold, Order, Phase

logger = logging.getLogger("runcontract.worker")

LOOK_EVERY = 2.0
"""Seconds between two looks for cancels and lost leases."""
GIVE_UP_GRACE = 3.0
"""Seconds that a job has to unwind when the worker must give its run up; half the fence margin
where that is less."""
SETTLE_GRACE = 6.0
"""Seconds that a drain leaves to a child whose perform has ended, and that only has to settle."""
TIMEOUT_GRACE = 5.0
"""Seconds that a job has to unwind after its timeout before its process is killed."""
CANCEL_GRACE = 20.0
"""The same after a cancel."""
LAST_WORDS = 9.0
"""Seconds after its drain timeout at which a supervisor is gone, whatever does not answer."""
BURIALS = 3
"""Children that may die over the same obituary before it is left to the watchdog."""
_RESTART_PAUSES = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Supervisor:
    """`run()` until told to stop; one per process, in its main thread."""

    def __init__(self, options: ChildOptions, processes: int, drain_timeout: float) -> None:
        self.processes, self.drain_timeout = processes, drain_timeout
        self.databases = Databases()
        self.crew, self.pulse = Crew(options), Pulse(self.databases)
        self.owed = Owed(self.databases)
        self._options = options
        self._stops = 0
        self._drain_until: float | None = None
        self._failed_starts = 0
        self._start_at = 0.0
        self._done = 0
        self._ready = False
        self._look_at = 0.0
        self._obituaries: list[Obituary] = []
        self._seen_unreported: set[tuple[Hold, str]] = set()
        self._wake_in, self._wake_out = os.pipe()

    def run(self) -> int:
        """Supervise until the drain or the burst is over; returns the exit code."""
        self._install()
        try:
            while not self._over():
                self._wait()
                self.crew.listen()
                self._bury()
                self._staff()
                self._say_ready()
                self._keep_pulse()
                self._fence()
                self._look()
                self._enforce()
                self._drain()
            self._last_words()
        finally:
            for member in self.crew.members:
                member.kill()
        logger.info("The worker has ended.")
        return 0

    # Signals and waiting.

    def _install(self) -> None:
        for descriptor in (self._wake_in, self._wake_out):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wake_out, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGQUIT, *_USER_SIGNALS):
            signal.signal(number, _only_wake)

    def _on_stop(self, signum: int, frame: FrameType | None) -> None:
        self._stops += 1

    def _wait(self) -> None:
        descriptors = [self._wake_in, *(m.reader.descriptor for m in self.crew.members)]
        try:
            select.select(descriptors, [], [], self._timeout())
        except OSError:
            return
        try:
            os.read(self._wake_in, 4096)
        except BlockingIOError:
            return

    def _timeout(self) -> float:
        return max(0.01, min(self._timers()))

    def _timers(self) -> Iterator[float]:
        yield 1.0
        holds = self._alive()
        if holds:
            yield self.pulse.due_in(holds)
        if any(member.performs for member in self.crew.members):
            yield self._look_at - now()
        for member in self.crew.members:
            for moment in (member.deadline, member.kill_at):
                if moment is not None:
                    yield moment - now()
            if member.told is not None and member.kill_at is not None:
                yield member.nudge_at - now()
        if self._vacancies():
            yield self._start_at - now()
        if self._drain_until is not None and now() < self._drain_until:
            yield self._drain_until - now()

    # Children.

    @property
    def draining(self) -> bool:
        return self._stops > 0

    def _vacancies(self) -> int:
        if self.draining:
            return 0
        return self.processes - self._done - len(self.crew.members)

    def _over(self) -> bool:
        if self.crew.members:
            return False
        return self.draining or self._done >= self.processes

    def _staff(self) -> None:
        """Replace who is missing; each newcomer buries the runs of those before it."""
        while self._vacancies() and now() >= self._start_at:
            try:
                self.crew.fork(self._obituaries)
            except OSError as error:
                self._put_off_start(f"could not be forked: {error}")
                return
            self._obituaries = []

    def _bury(self) -> None:
        for member in self.crew.dead():
            self._after_death(member)

    def _after_death(self, member: Member) -> None:
        status = member.status or 0
        code = os.waitstatus_to_exitcode(status)
        if member.hold is not None:
            self._inherit(member, cause_of_death(status))
        elif code not in (RECYCLED, DONE) and member.worked:
            logger.warning("An idle child was lost: %s.", cause_of_death(status))
        if not member.ready:
            self._hand_on(member)
        if code == DONE and self._options.burst and member.hold is None:
            self._done += 1
        elif code != RECYCLED and not member.worked:
            self._put_off_start(f"ended before any work: {cause_of_death(status)}")
            return
        self._failed_starts = 0

    def _put_off_start(self, reason: str) -> None:
        pause = _RESTART_PAUSES[min(self._failed_starts, len(_RESTART_PAUSES) - 1)]
        self._failed_starts += 1
        self._start_at = now() + pause
        logger.error("A child %s; the next one in %.1f s.", reason, pause)

    def _say_ready(self) -> None:
        if not self._ready and sum(m.ready for m in self.crew.members) >= self.processes:
            self._ready = True
            logger.info("The worker is ready: %d processes.", self.processes)

    def _hand_on(self, member: Member) -> None:
        """Its own obituaries were not all read out: the next child gets them."""
        for late in member.obituaries:
            if late.tries < BURIALS:
                again = Obituary(late.hold, late.kind, late.message, late.tries + 1)
                self._obituaries.append(again)

    def _inherit(self, member: Member, cause: str) -> None:
        """Decide what becomes of the run that a dead child held."""
        hold = member.hold
        if hold is None:
            return
        if member.phase is Phase.TAKING:
            self.owed.claimed_by(hold, member.name)
        elif member.told is Order.GIVE_UP and member.reason == "drain":
            if member.performs:
                self.owed.give_back(hold)
            else:
                logger.warning("%s: had ended but was not settled; the watchdog will.", hold)
        elif member.reason != "lost":
            self._obituaries.append(_obituary(member, hold, cause))

    # The pulse, and what it tells.

    def _alive(self) -> list[Hold]:
        """Every run that must keep its pulse; a claim under way may have been committed."""
        holds = [*self.owed.holds]
        for member in self.crew.members:
            hold = member.hold
            if hold is not None and member.phase is Phase.TAKING:
                if (hold.pk, hold.lease) == JOURNAL:
                    continue
                hold = Hold(hold.label, hold.pk, hold.lease + 1)
            if hold is not None and member.reason != "lost":
                holds.append(hold)
        return holds

    def _keep_pulse(self) -> None:
        for member in self.crew.members:
            if member.hold is not None:
                self.pulse.begin(member.hold.label)
        holds = self._alive()
        self.pulse.forget({hold.label for hold in holds})
        self.pulse.beat(holds)
        self.owed.settle()

    def _fence(self) -> None:
        """Stop the runs whose pulse has not got through, before anybody else may start them."""
        for member in self.crew.members:
            hold = member.hold
            if hold is None or not member.performs or member.told is Order.GIVE_UP:
                continue
            table = table_at(hold.label)
            trusted = max(member.since, self.pulse.trusted_since(hold.label))
            if table is None:
                continue
            limit = table.policy.stale_after - settings().FENCE_MARGIN
            if now() - trusted > limit.total_seconds():
                logger.error("%s: no pulse for %s; its job is stopped.", hold, limit)
                grace = min(GIVE_UP_GRACE, settings().FENCE_MARGIN.total_seconds() / 2)
                member.order(Order.GIVE_UP, grace=grace, reason="fence")

    def _look(self) -> None:
        """Every two seconds: cancels that were asked for, and runs that are not ours any more."""
        asked = {m.hold: m for m in self.crew.members if m.hold is not None and m.performs}
        if not asked or now() < self._look_at:
            return
        self._look_at = now() + LOOK_EVERY
        seen = self.pulse.look(asked)
        self.crew.listen()
        for hold, member in asked.items():
            if member.hold != hold or not member.performs or member.told is Order.GIVE_UP:
                continue
            if hold in seen.missing:
                logger.error("%s: not ours any more; its job is stopped.", hold)
                member.order(Order.GIVE_UP, grace=0.5, reason="lost")
            elif hold in seen.cancel and member.told is None:
                member.order(Order.CANCEL, grace=CANCEL_GRACE)
        self._find_unreported({hold.label for hold in asked})

    def _find_unreported(self, labels: set[str]) -> None:
        """Give back what runs under a child's name and that no child knows of, seen twice."""
        names = [member.name for member in self.crew.members]
        found = self.pulse.running_under(labels, names)
        self.crew.listen()
        known = {(member.hold, member.name) for member in self.crew.members}
        taking = {m.name for m in self.crew.members if m.phase is Phase.TAKING}
        loose = {item for item in found - known if item[1] not in taking}
        for hold, _ in loose & self._seen_unreported:
            logger.warning("%s: runs under a child's name but in no child; given back.", hold)
            self.owed.give_back(hold)
        self._seen_unreported = loose

    # Limits.

    def _enforce(self) -> None:
        for member in self.crew.members:
            if member.deadline is not None and now() >= member.deadline:
                member.deadline = None
                if member.told is not Order.GIVE_UP:
                    member.order(Order.TIMEOUT, grace=TIMEOUT_GRACE)
            if member.kill_at is None:
                continue
            if member.told is not None and now() >= member.nudge_at:
                member.nudge()
            if now() >= member.kill_at:
                member.kill_at = None
                logger.warning("%s: its process would not stop and is killed.", member.hold)
                member.kill()

    # The end.

    def _drain(self) -> None:
        """One stop: wait, then interrupt, then kill. A second stop: no waiting."""
        if not self.draining:
            return
        if self._drain_until is None:
            self._drain_until = now() + self.drain_timeout
            logger.info("Draining: nothing more is taken.")
            for member in self.crew.members:
                member.stop()
        if self._stops > 1:
            self._drain_until = min(self._drain_until, now())
        if now() >= self._drain_until:
            self._interrupt_all()

    def _interrupt_all(self) -> None:
        for member in self.crew.members:
            if member.hold is None:
                member.kill_at = member.kill_at or now() + GIVE_UP_GRACE
                continue
            if member.told is Order.GIVE_UP:
                # Without a limit it has ended in the meantime and only has to settle.
                member.kill_at = member.kill_at or now() + SETTLE_GRACE
                continue
            logger.warning("%s: has not ended in time and is given back.", member.hold)
            grace = GIVE_UP_GRACE if member.performs else SETTLE_GRACE
            member.order(Order.GIVE_UP, grace=grace, reason="drain")
            member.signal(signal.SIGTERM)

    def _last_words(self) -> None:
        """All processes are dead: give their runs back, bury the lost ones, stop the pulse."""
        until = max((self._drain_until or now()) + LAST_WORDS, now() + 1)
        self.databases.until = until
        while self.owed and now() < until:
            self.pulse.beat(self.owed.holds)
            self.owed.settle()
            if self.owed:
                self._wait()
        if self.owed:
            logger.error("Runs could not be given back in time; the watchdog will find them.")
        refused = [
            Obituary(hold, Failure.CANCELLED, "Cancelled while the worker stopped.")
            for hold in self.owed.refused
        ]
        if self._obituaries or refused:
            self._bury_at_the_end([*self._obituaries, *refused], until)
        forget_connections()

    def _bury_at_the_end(self, obituaries: list[Obituary], until: float) -> None:
        try:
            member = self.crew.fork(obituaries, only_bury=True)
        except OSError as error:
            logger.error("Lost runs are left to the watchdog: %s", error)
            return
        while member in self.crew.members and now() < until:
            self._wait()
            self.crew.listen()
            self.crew.dead()


def _obituary(member: Member, hold: Hold, cause: str) -> Obituary:
    if member.told is Order.TIMEOUT and member.performs:
        return Obituary(hold, Failure.TIMEOUT, f"Killed at its timeout: {cause}.")
    if member.reason == "fence":
        return Obituary(hold, Failure.STALE, "The worker lost the database and stopped the run.")
    return Obituary(hold, Failure.STALE, cause)


def _only_wake(signum: int, frame: FrameType | None) -> None:
    """The wake-up descriptor does the rest; these signals must not end the worker."""


_USER_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
