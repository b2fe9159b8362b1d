"""One claim from perform to settle.

The outcome of perform is decided here and written by transitions. Whatever a job raises, exits
with or leaves behind, this returns, and the worker lives on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections, transaction
from django.db.utils import DataError, IntegrityError, InternalError, ProgrammingError

from .. import signals
from ..conf import settings
from ..contract.classify import classify
from ..contract.context import RunContext
from ..contract.errors import RunError, describe
from ..contract.retry import pause as pause_before
from ..contract.states import Failure
from ..exceptions import (
    Interrupted,
    LeaseLost,
    RunCancelled,
    RunInterrupted,
    RunTimedOut,
)
from ..lifecycle import transitions
from ..lifecycle.database import (
    DatabaseFailure,
    cancel_statements,
    forget_connections,
    tidy_connections,
)
from ..lifecycle.hooks import HOOK_SECONDS
from ..lifecycle.patience import patience
from ..lifecycle.table import table_of
from .interrupts import Interrupts
from .reports import Hold, Order, Phase, Report

logger = logging.getLogger("runcontract.worker")

SETTLE_EVERY = 5.0
"""The longest pause between two tries to settle, and the longest wait in one, in seconds."""
HOOK_TRIES = 3
"""After this many broken tries `on_failed` is left out."""

Tell = Callable[[Report], None]


class GivenUp(Exception):
    """The run was left as it is, and this process must end: its supervisor knows what to do."""


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended. `error` None: it succeeded; `settled`: that is committed already."""

    error: BaseException | None = None
    settled: bool = False


class Execution:
    """One claimed run in this process."""

    def __init__(self, run: Any, interrupts: Interrupts, tell: Tell) -> None:
        self.run, self.table = run, table_of(type(run))
        self.policy = self.table.policy
        self.hold = Hold(self.table.label, run.pk, run.lease)
        self._interrupts, self._tell = interrupts, tell
        self._stats: Mapping[str, Any] = {}
        self._noting: asyncio.Task[None] | None = None

    def execute(self) -> None:
        """Perform and settle. Raises GivenUp when this process must end without writing."""
        if signals.run_started.has_listeners(type(self.run)):
            self._tell(Report(Phase.PERFORMING, self.hold))
            signals.run_started.send_robust(type(self.run), run=self.run)
        attempt = transitions.attempts_of(self.table, self.run)
        again = True
        while again:
            outcome = self._attempt(attempt)
            again = self._conclude(outcome, attempt)
            attempt += 1

    # Perform.

    def _attempt(self, attempt: int) -> Outcome:
        context = RunContext(
            job_id=self.run.job_id,
            attempt=attempt,
            lease=self.run.lease,
            note=self._note,
            interrupt=lambda: self._interrupts.raise_for(self.hold),
        )
        limit = self.policy.timeout
        self._tell(
            Report(Phase.PERFORMING, self.hold, None if limit is None else limit.total_seconds())
        )
        try:
            outcome = self._perform(context, attempt)
        finally:
            self._stats = context.stats
        if self._was_given_up(outcome):
            raise GivenUp
        self._tell(Report(Phase.SETTLING, self.hold))
        if isinstance(outcome.error, Interrupted):
            cancel_statements()
            forget_connections()
        elif not outcome.settled:
            tidy_connections(idle=False)  # or the settle would join what the job left open
        return outcome

    def _was_given_up(self, outcome: Outcome) -> bool:
        """What a job raises after it was told to give up is no verdict on its run."""
        if outcome.error is None or outcome.settled:
            return False
        ordered = self._interrupts.order_for(self.hold) is Order.GIVE_UP
        return ordered or isinstance(outcome.error, RunInterrupted)

    def _perform(self, context: RunContext, attempt: int) -> Outcome:
        if self.policy.atomic:
            return self._perform_atomically(context)
        done = False
        try:
            with self._window():
                self._call(context)
                done = True
        except BaseException as error:  # noqa: BLE001 - whatever a job raises
            return Outcome() if done else Outcome(error)
        return Outcome()

    def _perform_atomically(self, context: RunContext) -> Outcome:
        """The effects and the settle commit together, or neither does."""
        performed = False
        try:
            with patience() as limit, transaction.atomic(using=self.table.alias):
                with self._window():
                    self._call(context)
                performed = True
                self._tell(Report(Phase.SETTLING, self.hold))
                limit(SETTLE_EVERY)
                transitions.succeed(self.run, context.stats)
        except DatabaseFailure as error:
            return self._asked(error) if performed else Outcome(error)
        except BaseException as error:  # noqa: BLE001 - whatever a job raises
            return Outcome(error)
        return Outcome(settled=True)

    def _asked(self, error: BaseException) -> Outcome:
        """The commit's reply was lost: the row knows whether it was done."""
        row = self._persist(lambda _: transitions.read(self.table, self.run.pk))
        if row is not None and row.lease == self.run.lease and row.finished_at is not None:
            return Outcome(settled=True)
        return Outcome(error)

    def _window(self) -> AbstractContextManager[None]:
        return self._interrupts.window(self.hold, raising=not self._is_coroutine)

    @property
    def _is_coroutine(self) -> bool:
        return inspect.iscoroutinefunction(self.run.perform)

    def _call(self, context: RunContext) -> None:
        perform = self.run.perform
        if not self._is_coroutine:
            perform(context)
            return

        async def watched() -> None:
            task = asyncio.current_task()
            if task is not None:
                self._interrupts.watch_task(asyncio.get_running_loop(), task)
            await perform(context)

        try:
            async_to_sync(watched)()
        except asyncio.CancelledError:
            self._interrupts.raise_for(self.hold)
            raise

    def _note(self, stats: Mapping[str, Any]) -> None:
        """Write the live stats; from a coroutine in the thread that has the connection."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._write_note(stats)
            return
        if self._noting is None or self._noting.done():
            self._noting = loop.create_task(self._note_later(stats))

    async def _note_later(self, stats: Mapping[str, Any]) -> None:
        with suppress(RunCancelled, LeaseLost):  # the supervisor's order says it to the task
            await sync_to_async(self._write_note)(stats)

    def _write_note(self, stats: Mapping[str, Any]) -> None:
        """Not while a transaction of the job's is open, which would hide it and lock the row."""
        if connections[self.table.alias].in_atomic_block:
            return
        try:
            asked = transitions.note(self.run, stats)
        except DatabaseFailure:
            return
        if asked:
            raise RunCancelled("a cancel was asked for")

    # Conclude.

    def _conclude(self, outcome: Outcome, attempt: int) -> bool:
        """Write what follows from an outcome; True if another attempt begins here."""
        error = outcome.error
        if outcome.settled:
            return False
        if error is None:
            self._persist(lambda _: transitions.succeed(self.run, self._stats))
            return False
        if isinstance(error, LeaseLost) and error.pk == self.run.pk:
            logger.warning("%s: lost its lease; nothing is written.", self.hold)
            return False
        told = describe(error, attempt=attempt, redact=settings().redact)
        if isinstance(error, RunCancelled):
            self._fail(Failure.CANCELLED, told)
            return False
        return self._retry_or_fail(error, told, attempt)

    def _retry_or_fail(self, error: BaseException, told: RunError, attempt: int) -> bool:
        verdict = classify(error, self.policy.classify)
        if not verdict.transient:
            self._fail(Failure.PERMANENT, told)
            return False
        if attempt >= self.policy.max_attempts:
            timed_out = isinstance(error, RunTimedOut)
            self._fail(Failure.TIMEOUT if timed_out else Failure.EXHAUSTED, told)
            return False
        pause = pause_before(attempt, verdict.retry_after, self.policy)
        if pause <= self.policy.short_pause:
            return self._pause_here(pause, told, attempt)
        if self.table.counts:
            self._defer(pause, told)
        elif verdict.retry_after is None:
            return self._pause_here(self.policy.short_pause, told, attempt)
        else:
            self._fail(Failure.EXHAUSTED, told)
        return False

    def _pause_here(self, pause: timedelta, told: RunError, attempt: int) -> bool:
        """Wait inside the claim; a stop that comes meanwhile defers the rest of the pause."""
        logger.info("%s: attempt %d failed, again in %s.", self.hold, attempt, pause)
        self._tell(Report(Phase.PAUSING, self.hold))
        left = self._interrupts.pause(self.hold, pause.total_seconds())
        order = self._interrupts.order_for(self.hold)
        if order is Order.GIVE_UP:
            raise GivenUp
        if order is Order.CANCEL:
            self._fail(Failure.CANCELLED, told)
            return False
        if self._interrupts.stopping:
            self._leave_in_pause(timedelta(seconds=left), told)
            return False
        counted = self._persist(
            lambda _: transitions.next_attempt(self.run, attempt, told, self._stats)
        )
        if counted is False:
            self._fail(Failure.CANCELLED, told)
        return counted is True

    def _leave_in_pause(self, left: timedelta, told: RunError) -> None:
        if self.table.counts:
            self._defer(left, told)
        else:
            back = self._persist(
                lambda _: transitions.give_back(self.table, self.run.pk, self.run.lease)
            )
            if back is False:
                self._fail(Failure.CANCELLED, told)

    def _defer(self, pause: timedelta, told: RunError) -> None:
        if self._persist(lambda _: transitions.defer(self.run, pause, told, self._stats)) is False:
            self._fail(Failure.CANCELLED, told)

    def _fail(self, failure: Failure, told: RunError) -> None:
        error = RunError(told.type, told.message, told.traceback, told.attempt, str(failure))
        logger.info("%s: failed (%s): %s", self.hold, failure, error.type)
        self._persist(
            lambda hook: transitions.fail(self.run, failure, error, self._stats, hook=hook),
            seconds=SETTLE_EVERY + HOOK_SECONDS,
        )

    def _persist(self, move: Callable[[bool], Any], *, seconds: float = SETTLE_EVERY) -> Any:
        """Write until it is through: perform has ended and is never done again for this.

        None if the lease was lost. `move` is told whether the consumer's hook is still to be run;
        one try takes no longer than `seconds`.
        """
        self._tell(Report(Phase.SETTLING, self.hold))
        broken, said = 0, False
        while True:
            try:
                with patience(seconds):
                    return move(broken < HOOK_TRIES)
            except LeaseLost:
                logger.warning("%s: lost its lease; nothing was written.", self.hold)
                return None
            except (DataError, ProgrammingError, IntegrityError, InternalError):
                broken += 1
                if broken > HOOK_TRIES:
                    raise
                forget_connections()  # the job may have left its session in a strange mode
            except DatabaseFailure as error:
                broken += self._database_answers()
                if not said:
                    said = True
                    name = type(error).__name__
                    logger.warning("%s: could not be settled yet (%s).", self.hold, name)
                time.sleep(min(SETTLE_EVERY, 0.2 * 2**broken))

    def _database_answers(self) -> int:
        """1 if a fresh connection works, so that it was the move itself that broke."""
        cancel_statements()
        forget_connections()
        try:
            with patience(SETTLE_EVERY):
                transitions.read(self.table, self.run.pk)
        except DatabaseFailure:
            forget_connections()
            return 0
        return 1
