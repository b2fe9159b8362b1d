"""The clock of the self-fence: it goes on while the machine sleeps."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from django.db.utils import OperationalError

_BOOT = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds since some fixed moment, suspended time included where the system can tell."""
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)


class DatabaseSilent(OperationalError):
    """The database did not answer in time."""


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raise DatabaseSilent in the main thread when the block takes longer.

    A frozen server cancels nothing, so the client's own alarm has to end the wait.
    """

    def alarm(signum: int, frame: FrameType | None) -> None:
        raise DatabaseSilent(f"no answer within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
