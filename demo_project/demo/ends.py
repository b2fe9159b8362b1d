"""How a demo ends: by itself, or by a signal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from .processes import Keeper


@dataclass(frozen=True)
class End:
    """How it ended: the exit code, and the last words."""

    code: int
    words: str


STOPPED = End(0, "nothing is left running")
DONE = End(0, "all is done and every check holds")
FAILED = End(1, "not everything is as it should be")
INTERRUPTED = End(130, "nothing was checked")


@contextmanager
def stopped_by_signals(keeper: Keeper) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt; the second one hurries the keeper."""
    asked = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            keeper.hurry = True
        else:
            asked = True
            raise KeyboardInterrupt

    obeyed = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        obeyed.append(signal.SIGHUP)
    before = {each: signal.signal(each, stop) for each in obeyed}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
