"""The words of an exception, taken from it with tongs: it may raise, sleep or never end."""

from __future__ import annotations

import linecache
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from types import FrameType, TracebackType

NAME_LIMIT = 200
WORDS_IN_TIME = 1.0
"""Seconds that an exception's own `__str__` may take, where an alarm can be set."""
CAUSES = 5
MEMBERS = 5
FIRST_FRAMES = 15
LAST_FRAMES = 40
NOTES = 5
LINE_LIMIT = 300


class _TooSlow(BaseException):
    """The alarm rang."""


def type_name(exc: BaseException) -> str:
    """The class of an exception with its module, cut at 200 characters."""
    cls = type(exc)
    name = str(cls.__qualname__)
    module = cls.__module__
    full = name if module in ("builtins", "__main__") else f"{module}.{name}"
    return full if len(full) <= NAME_LIMIT else f"{full[:NAME_LIMIT]}…"


def safe_text(exc: BaseException) -> str:
    """`str(exc)`, or a sentence that says what happened when it was asked for."""
    try:
        with _alarm(WORDS_IN_TIME):
            return str(str(exc))
    except _TooSlow:
        return f"<its text did not come within {WORDS_IN_TIME:.0f} s>"
    except BaseException as problem:  # noqa: BLE001 - an exception may do anything here
        return f"<its text could not be had: {type(problem).__name__}>"


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise _TooSlow after a while; in the main thread only, for only there signals are taken.

    A timer that a job has left running is restored with what was left of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(signum: int, frame: FrameType | None) -> None:
        raise _TooSlow

    handler = signal.signal(signal.SIGALRM, ring)
    begun = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler if handler is not None else signal.SIG_DFL)
        if left:
            spent = time.monotonic() - begun
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - spent), interval)


def raw_traceback(exc: BaseException) -> str:
    """Frames and causes, the latest cause last, each bounded; local variables never."""
    try:
        return "\n".join(_chain(exc))
    except BaseException as problem:  # noqa: BLE001 - e.g. no memory left
        return f"<the traceback could not be had: {type(problem).__name__}>"


def _chain(exc: BaseException) -> Iterator[str]:
    blocks: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = exc
    link = ""
    while current is not None and id(current) not in seen and len(blocks) < CAUSES:
        seen.add(id(current))
        blocks.append("\n".join(_one(current)) + link)
        current, link = _before(current)
    if current is not None:
        yield "… [earlier causes left out] …"
    yield from reversed(blocks)


def _before(exc: BaseException) -> tuple[BaseException | None, str]:
    """The exception before this one, and the words that join them."""
    if exc.__cause__ is not None:
        return exc.__cause__, "\n\nThis was the cause of:\n"
    if exc.__context__ is not None and not exc.__suppress_context__:
        return exc.__context__, "\n\nWhile this was handled, there came:\n"
    return None, ""


def _one(exc: BaseException) -> Iterator[str]:
    yield "Traceback (most recent call last):"
    yield from _frames(exc.__traceback__)
    words = safe_text(exc)[:4000]
    yield f"{type_name(exc)}: {words}" if words else type_name(exc)
    notes = getattr(exc, "__notes__", None)
    for note in islice(notes, NOTES) if isinstance(notes, list) else ():
        yield str(note)[:LINE_LIMIT] if isinstance(note, str) else "<a note that is no text>"
    if isinstance(exc, BaseExceptionGroup):
        yield from _members(exc)


def _members(group: BaseExceptionGroup[BaseException]) -> Iterator[str]:
    for member in group.exceptions[:MEMBERS]:
        yield f"  | {type_name(member)}: {safe_text(member)[:LINE_LIMIT]}"
    more = len(group.exceptions) - MEMBERS
    if more > 0:
        yield f"  | … and {more:,} more"


def _frames(traceback: TracebackType | None) -> Iterator[str]:
    first: list[str] = []
    last: deque[str] = deque(maxlen=LAST_FRAMES)
    count = 0
    while traceback is not None:
        count += 1
        if len(first) < FIRST_FRAMES:
            first.append(_frame(traceback))
        else:
            last.append(_frame(traceback))
        traceback = traceback.tb_next
    yield from first
    if count > len(first) + len(last):
        yield f"  … [{count - len(first) - len(last):,} frames left out] …"
    yield from last


def _frame(traceback: TracebackType) -> str:
    code = traceback.tb_frame.f_code
    where = f'  File "{code.co_filename}", line {traceback.tb_lineno}, in {code.co_name}'
    source = linecache.getline(
        code.co_filename, traceback.tb_lineno, traceback.tb_frame.f_globals
    ).strip()
    return f"{where}\n    {source[:LINE_LIMIT]}" if source else where
