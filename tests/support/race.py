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

    def runner(index: int, racer: Callable[[], Any]) -> None:
        try:
            for alias in using:
                connections[alias].ensure_connection()
            barrier.wait(timeout)
            outcomes[index].value = racer()
        except BaseException as error:
            outcomes[index].error = error
            barrier.abort() if barrier.n_waiting else None
        finally:
            connections.close_all()

    threads = [
        threading.Thread(target=runner, args=pair, name=f"racer-{pair[0]}", daemon=True)
        for pair in enumerate(callables)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    late = [thread.name for thread in threads if thread.is_alive()]
    assert not late, f"Still running after {timeout} s: {', '.join(late)}"
    return outcomes


def values(outcomes: list[Outcome]) -> list[Any]:
    """What they returned; the first error among them is raised."""
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return [outcome.value for outcome in outcomes]
