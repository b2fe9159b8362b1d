"""How a child is told to stop taking, and how a running perform is interrupted.

Signals only carry the news; the order itself comes over a pipe and names the run and its lease,
so a late one never hits the next run, and a job that hears no signals cannot lose it. Nothing is
raised outside the window in which perform runs: not in our own statements, not in our own Redis
commands.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from asyncio import AbstractEventLoop, Task
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from ..exceptions import Interrupted, RunCancelled, RunInterrupted, RunTimedOut
from .reports import Hold, LineReader, Order, parse_order

RAISED: dict[Order, type[Interrupted]] = {
    Order.CANCEL: RunCancelled,
    Order.TIMEOUT: RunTimedOut,
    Order.GIVE_UP: RunInterrupted,
}
NEWS = signal.SIGUSR1
"""The signal that says that an order waits in the pipe."""
_STOPS = (signal.SIGTERM, signal.SIGINT)
_HARMLESS = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2)
SLICE = 0.1


class Interrupts:
    """The signal handlers of a child. One per process, made in its main thread."""

    def __init__(self, orders: int) -> None:
        self._stopping = False
        self._reader = LineReader(orders)
        self._orders: dict[Hold, Order] = {}
        self._window: Hold | None = None
        self._raises = True
        self._mask = threading.local()
        self._task: tuple[AbstractEventLoop, Task[Any]] | None = None

    def install(self) -> None:
        """Set the handlers, again after each perform: a job may have replaced or blocked them.

        Its alarm ends with it.
        """
        for number in _STOPS:
            signal.signal(number, self._on_stop)
        signal.signal(NEWS, self._on_news)
        for number in _HARMLESS:
            signal.signal(number, _nothing)  # not SIG_IGN, which a job's programs would inherit
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_STOPS, NEWS, signal.SIGALRM})

    def end_at_fork(self) -> None:
        """In a process that a job forks, signals mean what they mean anywhere.

        Otherwise `multiprocessing` could not terminate its own processes, and they would read the
        orders that are for their parent. Signals wait during the fork, or one that comes at its
        very moment would meet the handlers of the parent.
        """
        os.register_at_fork(
            before=self._hold_signals,
            after_in_parent=self._release_signals,
            after_in_child=self._let_go,
        )

    def _hold_signals(self) -> None:
        self._mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_STOPS, NEWS, *_HARMLESS})

    def _release_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask.before)

    def _let_go(self) -> None:
        for number in (*_STOPS, NEWS, *_HARMLESS):
            signal.signal(number, signal.SIG_DFL)
        self._window = None
        os.close(self._reader.descriptor)
        self._release_signals()

    @property
    def stopping(self) -> bool:
        """Take nothing more; what runs may finish."""
        if not self._stopping:
            self._read()
        return self._stopping

    def _on_stop(self, signum: int, frame: FrameType | None) -> None:
        self._stopping = True
        self._on_news(signum, frame)

    def _on_news(self, signum: int, frame: FrameType | None) -> None:
        self._read()
        self._interrupt()

    def _read(self) -> None:
        for line in self._reader.lines():
            order = parse_order(line)
            if order is None:
                self._stopping = True
            else:
                self._orders[order[1]] = order[0]

    def _interrupt(self) -> None:
        hold = self._window
        order = self._orders.get(hold) if hold else None
        if order is None or hold is None:
            return
        if self._task is not None:
            self._window = None  # once: the coroutine may be tidying up
            loop, task = self._task
            with suppress(RuntimeError):  # its loop has ended, and the coroutine with it
                loop.call_soon_threadsafe(task.cancel)
        elif self._raises:
            self._window = None
            raise self._taken(order, hold)

    def _taken(self, order: Order, hold: Hold) -> Interrupted:
        """What to raise. A timeout is over with its attempt; the others hold for the claim."""
        if order is Order.TIMEOUT:
            del self._orders[hold]
        return RAISED[order]()

    def order_for(self, hold: Hold) -> Order | None:
        """What the supervisor has ordered for this run, if anything."""
        self._read()
        return self._orders.get(hold)

    def raise_for(self, hold: Hold) -> None:
        """Raise what was ordered for this run; for code that no signal can reach."""
        order = self._orders.get(hold)
        if order is None:
            return
        if threading.current_thread() is threading.main_thread():
            self._window = None
        raise self._taken(order, hold)

    @contextmanager
    def window(self, hold: Hold, *, raising: bool = True) -> Iterator[None]:
        """While open, an order for this run is raised inside the main thread.

        Not `raising`: it waits for `watch_task`, because a coroutine runs in another thread and
        would go on.
        """
        self._read()
        order = self._orders.get(hold)
        self._orders = {} if order in (None, Order.TIMEOUT) else {hold: order}
        self._window, self._raises = hold, raising
        try:
            self._on_news(0, None)
            yield
        finally:
            self._window = self._task = None
            self.install()

    def watch_task(self, loop: AbstractEventLoop, task: Task[Any]) -> None:
        """From now on an order cancels this task instead, so that a coroutine sees it."""
        self._task = (loop, task)
        self._interrupt()

    def pause(self, hold: Hold, seconds: float) -> float:
        """Wait; returns the seconds that were left when a stop or an order ended it early."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.stopping or self.order_for(hold) in (Order.CANCEL, Order.GIVE_UP):
                return left
            time.sleep(min(SLICE, left))
        return 0.0

    def sleep(self, seconds: float) -> bool:
        """Wait while nobody wants this child to stop; False if somebody does."""
        end = time.monotonic() + seconds
        while not self.stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(SLICE, left))
        return not self.stopping


def _nothing(signum: int, frame: FrameType | None) -> None:
    """A signal that must not end the worker."""
