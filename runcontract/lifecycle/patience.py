"""An end to waiting: for a database that does not answer, and for code that does not return.

A frozen server cancels nothing, and a dropped connection is noticed by the kernel after a quarter
of an hour, so the client's own alarm has to end the wait.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from django.db.utils import OperationalError

AGAIN = 2.0
"""Seconds after which the alarm is raised once more, where the first one was swallowed."""


class DatabaseSilent(OperationalError):
    """The database did not answer in time."""


@contextmanager
def patience(seconds: float | None = None) -> Iterator[Callable[[float], None]]:
    """Raise DatabaseSilent in the main thread when the block takes longer; may be nested.

    Without seconds it begins when what it yields is called with them. In another thread there is
    no alarm, and the block takes as long as it takes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda _: None
        return
    begun, before = time.monotonic(), signal.getsignal(signal.SIGALRM)
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        if seconds is not None:
            _set_alarm(seconds)
        yield _set_alarm
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
        if left:
            rest = max(0.001, left - (time.monotonic() - begun))
            signal.setitimer(signal.ITIMER_REAL, rest, interval)


def _set_alarm(seconds: float) -> None:
    def alarm(signum: int, frame: FrameType | None) -> None:
        raise DatabaseSilent(f"no answer within {seconds:.1f} s")

    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
