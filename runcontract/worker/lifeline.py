"""A child cannot outlive its supervisor."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, orders: int) -> None:
    """From now on this process is killed when its parent dies, however that happens.

    On Linux by the kernel (the signal is sent when the thread that forked dies, so children are
    forked from the main thread); elsewhere by a thread that sees the end of the order pipe. The
    parent is checked afterwards: it may have died in between.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_exit_at_end, args=(orders,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _exit_at_end(orders: int) -> None:
    poll = select.poll()
    poll.register(orders, select.POLLHUP)
    while not any(event & select.POLLHUP for _, event in poll.poll(1000)):
        continue
    os._exit(1)
