"""Calls into code that is not ours and may raise anything, or never come back.

The time limit is a signal (SIGALRM), so it holds in the main thread only, which is where a
worker's child runs its jobs. It ends Python code, sleeps and waits for locks; it does not end one
long call into C, nor code that catches every BaseException and goes on.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


class Overdue(BaseException):
    """Foreign code was given its time and did not end. A BaseException: it must get through."""


def guarded(call: Callable[[], T], otherwise: Callable[[BaseException], T], seconds: float) -> T:
    """What `call` returns, or `otherwise(what it raised)`: KeyboardInterrupt too, or Overdue.

    A SIGALRM handler or ITIMER_REAL timer of others is back afterwards, with its time gone on.
    """
    try:
        return _limited(call, seconds)
    except BaseException as error:  # noqa: BLE001 -- whatever foreign code raises is an answer
        return otherwise(error)


def _limited(call: Callable[[], T], seconds: float) -> T:
    others = signal.getsignal(signal.SIGALRM)
    if threading.current_thread() is not threading.main_thread() or others is None:
        return call()
    waiting = [True]

    def ring(number: int, frame: FrameType | None) -> None:
        if waiting:
            raise Overdue

    left, period, started = 0.0, 0.0, time.monotonic()
    try:
        left, period = signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
        return call()
    finally:
        waiting.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, others)
        if left:
            rest = max(left - (time.monotonic() - started), 0.001)
            signal.setitimer(signal.ITIMER_REAL, rest, period)


class Patience:
    """A stretch of time that several guarded calls share; once it is over, none is made."""

    def __init__(self, seconds: float, each: float) -> None:
        self._end, self._each = time.monotonic() + seconds, each

    def ask(self, call: Callable[[], T], otherwise: Callable[[BaseException], T]) -> T:
        """Like `guarded`, with at most `each` seconds of what is left."""
        left = self._end - time.monotonic()
        if left <= 0:
            return otherwise(Overdue())
        return guarded(call, otherwise, min(left, self._each))
