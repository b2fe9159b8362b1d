"""Waiting for what happens in another process: a poll with a limit, never a bare sleep."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    look: Callable[[], T],
    timeout: float = 10,
    *,
    every: float = 0.05,
    ignoring: tuple[type[Exception], ...] = (),
) -> T:
    """The first true answer of `look`. An AssertionError in it means: not yet.

    Fails after `timeout` seconds with the last answer or error. Errors named in `ignoring` mean
    "not yet" too; any other is passed on at once.
    """
    end = time.monotonic() + timeout
    last: object = None
    while True:
        try:
            answer = look()
            if answer:
                return answer
            last = answer
        except (AssertionError, *ignoring) as error:
            last = error
        if time.monotonic() > end:
            raise AssertionError(f"Not within {timeout} s; the last answer was: {last!r}")
        time.sleep(every)


def always(look: Callable[[], object], seconds: float, *, every: float = 0.05) -> None:
    """Fail as soon as `look` gives a false answer, within `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = look()
        assert answer, f"No longer so: {answer!r}"
        time.sleep(every)
