"""What a running `perform` is given: its steps, its progress, its lease."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .errors import clean

NOTE_EVERY = 1.0
"""Seconds between two writes of the live stats, however often a job reports."""
STEPS_KEPT = 200
"""Steps of one attempt that are stored; later ones are only counted."""

COUNTS_KEPT = 100
"""Different counts of one step that are stored; later ones are left out."""


class Step:
    """One timed step, with counts."""

    def __init__(self, name: str) -> None:
        self.name = clean(str(name)[:200])
        self.counts: dict[str, float] = {}
        self.seconds: float | None = None
        self.failed = False

    def count(self, **numbers: float) -> None:
        """Add to the step's counts: `step.count(pages=1, bytes=len(body))`."""
        for given, number in numbers.items():
            name = clean(given[:100])
            if name in self.counts or len(self.counts) < COUNTS_KEPT:
                self.counts[name] = _finite(self.counts.get(name, 0) + number)

    def as_json(self) -> dict[str, Any]:
        seconds = None if self.seconds is None else round(self.seconds, 4)
        return {"name": self.name, "seconds": seconds, "failed": self.failed, **self._counted()}

    def _counted(self) -> dict[str, Any]:
        return {"counts": self.counts} if self.counts else {}


class RunContext:
    """The first argument of `perform(self, ctx)`.

    `job_id` names the run, `attempt` counts from 1, and `lease` only ever grows: hand it to other
    systems as a fencing number.
    """

    def __init__(
        self,
        *,
        job_id: str,
        attempt: int,
        lease: int,
        note: Callable[[Mapping[str, Any]], None],
        interrupt: Callable[[], None],
    ) -> None:
        self.job_id, self.attempt, self.lease = job_id, attempt, lease
        self._note, self._interrupt = note, interrupt
        self._steps: list[Step] = []
        self._left_out = 0
        self._progress: dict[str, float] = {}
        self._noted_at = time.monotonic()

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Time a named step. What it counts and how long it took is stored with the run."""
        step = Step(name)
        if len(self._steps) < STEPS_KEPT:
            self._steps.append(step)
        else:
            self._left_out += 1
        begun = time.monotonic()
        try:
            yield step
        except BaseException:
            step.failed = True
            raise
        finally:
            step.seconds = time.monotonic() - begun
            self._report()

    def progress(self, done: float, total: float | None = None) -> None:
        """Say how far the work is; shown while it runs, written at most once a second."""
        self._progress = {"done": _finite(done)}
        if total is not None:
            self._progress["total"] = _finite(total)
        self._report()

    def check(self) -> None:
        """Raise if the run is not ours any more or a cancel is asked: RunCancelled, LeaseLost …

        Worth a call in long loops and in threads of your own, where nothing can be raised from
        outside. Asks the database at most once a second.
        """
        self._interrupt()
        self._report()

    @property
    def stats(self) -> dict[str, Any]:
        """The step stats and the progress so far, as they are stored."""
        told: dict[str, Any] = {}
        if self._steps:
            told["steps"] = [step.as_json() for step in self._steps]
        if self._left_out:
            told["steps_left_out"] = self._left_out
        if self._progress:
            told["progress"] = self._progress
        return told

    def _report(self) -> None:
        if time.monotonic() - self._noted_at >= NOTE_EVERY:
            self._noted_at = time.monotonic()
            self._note(self.stats)


def _finite(number: float) -> float:
    """A number that JSON and Postgres can hold: 0 in place of NaN, infinities and giants."""
    if isinstance(number, int):
        return number if abs(number) < 2**63 else 0
    return float(number) if math.isfinite(number) else 0.0
