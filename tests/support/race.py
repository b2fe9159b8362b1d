"""Callables that meet at a barrier, each on a thread with database connections of its own."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connections


@dataclass
class Outcome:
    """What one of the racers returned, or raised."""

    value: Any = None
    error: BaseException | None = None


def race(
    *callables: Callable[[], Any], using: Sequence[str] = ("default",), timeout: float = 60
) -> list[Outcome]:
    """Run them at the same moment; their outcomes in the order given.

    Each thread is connected to the databases `using` before the start, so that the moment is the
    same indeed, and every connection is closed at the end. Needs `transactional_db`.
    """
    barrier = threading.Barrier(len(callables))
    outcomes = [Outcome() for _ in callables]

    def runner(outcome: Outcome, racer: Callable[[], Any]) -> None:
        try:
            _meet(barrier, using, timeout)
            outcome.value = racer()
        except BaseException as error:
            outcome.error = error
        finally:
            connections.close_all()

    threads = [
        threading.Thread(target=runner, args=pair, daemon=True)
        for pair in zip(outcomes, callables, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    late = sum(thread.is_alive() for thread in threads)
    assert not late, f"{late} of {len(threads)} are still running after {timeout} s"
    return outcomes


def _meet(barrier: threading.Barrier, using: Sequence[str], timeout: float) -> None:
    try:
        for alias in using:
            connections[alias].ensure_connection()
    except BaseException:
        barrier.abort()  # nobody waits for one who does not come
        raise
    barrier.wait(timeout)


def values(outcomes: list[Outcome]) -> list[Any]:
    """What they returned; the first error among them is raised."""
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return [outcome.value for outcome in outcomes]
