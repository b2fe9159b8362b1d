"""The children as their supervisor sees them: forked, listened to, told, killed, replaced."""

from __future__ import annotations

import gc
import logging
import os
import signal
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn

from ..lifecycle.database import close_before_fork
from .burial import Obituary
from .child import ChildOptions, live, worker_name
from .clock import now
from .interrupts import NEWS
from .reports import BROKEN, STOP, Hold, LineReader, Order, Phase, Report, encode_order, tell

logger = logging.getLogger("runcontract.worker")

NUDGE_EVERY = 0.5
"""Seconds between two signals for the same order."""


@dataclass
class Member:
    """One child."""

    pid: int
    name: str
    reader: LineReader
    orders: int
    born: float
    obituaries: Sequence[Obituary] = ()
    phase: Phase = Phase.IDLE
    hold: Hold | None = None
    since: float = 0.0
    """When the claim that it holds was reported."""
    deadline: float | None = None
    ready: bool = False
    told: Order | None = None
    reason: str = ""
    """Why it was told to give its run up."""
    kill_at: float | None = None
    nudge_at: float = 0.0
    status: int | None = None
    worked: bool = False
    """Whether any perform began in it."""

    @property
    def performs(self) -> bool:
        """Whether consumer code may be at work in it."""
        return self.phase in (Phase.PERFORMING, Phase.PAUSING)

    def listen(self) -> None:
        """Take in its reports."""
        for line in self.reader.lines():
            try:
                report = Report.parse(line)
            except ValueError:
                logger.error("%s: its job wrote into its reports: %.80r", self.name, line)
                continue
            self._take_in(report)

    def _take_in(self, report: Report) -> None:
        self.ready = True
        if report.hold != self.hold:
            self.since, self.told, self.kill_at, self.reason = now(), None, None, ""
        if report.phase is Phase.SETTLING:
            self.kill_at = None
        elif self.told is Order.TIMEOUT:
            self.told = self.kill_at = None
        self.phase, self.hold = report.phase, report.hold
        self.worked = self.worked or self.performs
        self.deadline = None if report.timeout is None else now() + report.timeout

    def order(self, order: Order, *, grace: float, reason: str = "") -> None:
        """Tell it what to do with its run; it is killed if it has not done it within the grace."""
        if self.hold is None:
            return
        self.told, self.reason, self.kill_at = order, reason, now() + grace
        tell(self.orders, encode_order(order, self.hold))
        self.nudge()

    def nudge(self) -> None:
        """Say that an order waits, again and again while it may have been missed.

        Of two signals at once a thread of the job's may take both, and Python's handlers run in
        the main thread, which nobody has woken then.
        """
        self.nudge_at = now() + NUDGE_EVERY
        self.signal(NEWS)

    def stop(self) -> None:
        """Let it take nothing more, even if its job hears no signals."""
        tell(self.orders, STOP)
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return

    def kill(self) -> None:
        """End it and every process that its job has started."""
        for target in (os.killpg, os.kill):
            try:
                target(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue

    def close(self) -> None:
        os.close(self.reader.descriptor)
        os.close(self.orders)


class Crew:
    """All children of one supervisor."""

    def __init__(self, options: ChildOptions) -> None:
        self.options = options
        self.members: list[Member] = []

    def fork(self, obituaries: Sequence[Obituary] = (), *, only_bury: bool = False) -> Member:
        """A new child. No database connection is open while it is forked.

        Signals wait until the child has its own handlers.
        """
        close_before_fork()
        report_in, report_out = os.pipe()
        order_in, order_out = os.pipe()
        parent, nonce = os.getpid(), uuid.uuid4().hex[:8]
        with _no_signals():
            gc.freeze()
            try:
                pid = os.fork()
            except OSError:
                for descriptor in (report_in, report_out, order_in, order_out):
                    os.close(descriptor)
                raise
            if pid == 0:
                self._be_born(
                    parent,
                    nonce,
                    (report_in, order_out),
                    (report_out, order_in),
                    obituaries,
                    only_bury=only_bury,
                )
            with suppress(OSError):
                os.setpgid(pid, pid)
        os.close(report_out)
        os.close(order_in)
        name = worker_name(pid, nonce)
        member = Member(pid, name, LineReader(report_in), order_out, now(), obituaries)
        self.members.append(member)
        return member

    def _be_born(
        self,
        parent: int,
        nonce: str,
        parents: tuple[int, int],
        own: tuple[int, int],
        obituaries: Sequence[Obituary],
        *,
        only_bury: bool,
    ) -> NoReturn:
        """In the new process; nothing here may return to the supervisor's code."""
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            self._close_inherited(parents)
            name = worker_name(os.getpid(), nonce)
            live(self.options, name, parent, *own, obituaries, only_bury=only_bury)
        finally:
            os._exit(BROKEN)

    def _close_inherited(self, own: Sequence[int]) -> None:
        for descriptor in own:
            os.close(descriptor)
        for member in self.members:
            member.close()

    def listen(self) -> None:
        for member in self.members:
            member.listen()

    def dead(self) -> list[Member]:
        """Those that have ended; their process groups are killed, their last words taken in."""
        ended = []
        for member in list(self.members):
            if self._has_ended(member):
                member.kill()
                if member.status is None:
                    _, member.status = os.waitpid(member.pid, 0)
                member.listen()
                member.close()
                self.members.remove(member)
                ended.append(member)
        return ended

    @staticmethod
    def _has_ended(member: Member) -> bool:
        """Seen but not yet waited for, so that its pid cannot belong to anybody else.

        Python before 3.13 has no waitid on macOS; there it is waited for at once.
        """
        if hasattr(os, "waitid"):
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, member.pid, flags) is not None
        ended, status = os.waitpid(member.pid, os.WNOHANG)
        member.status = status if ended else None
        return bool(ended)


@contextmanager
def _no_signals() -> Iterator[None]:
    """Signals wait."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def cause_of_death(status: int) -> str:
    """The words for a wait status."""
    if os.WIFSIGNALED(status):
        return f"worker died (signal {os.WTERMSIG(status)})"
    return f"worker died (exit code {os.waitstatus_to_exitcode(status)})"
