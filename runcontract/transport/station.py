"""A worker process as RQ sees it: an RQ SimpleWorker whose queueing is ours.

Only what is the same in RQ 2.12 and 3.0 is overridden. RQ's part is the loop and the registration
that `rq info` and django-rq's pages show; RQ never fetches a job, never runs one and never
repairs anything. With Redis gone the loop goes on, fed from the journal.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from rq import SimpleWorker
from rq.exceptions import StopRequested
from rq.job import Job
from rq.utils import now
from rq.worker_registration import clean_worker_registry, register

from ..exceptions import TransportUnavailable
from .connection import PATIENT, breaker_of, client
from .queue import RunQueue

Next = Callable[[bool], "tuple[str, Any] | None"]
REGISTER_EVERY = 15.0
QUEUES_TTL = 86_400


class Station(SimpleWorker):
    """`next_run(burst)` brings (lane, run) or None when a burst is over; `perform(run)` does it.

    `next_run` raises StopIteration when the worker is to stop: the only stop point, with no
    message in hand.
    """

    queue_class = RunQueue

    def __init__(
        self,
        names: Sequence[str],
        *,
        name: str,
        next_run: Next,
        perform_run: Callable[[Any], None],
    ) -> None:
        connection = client(names[0], patience=PATIENT)
        queues = [RunQueue(lane, connection=connection) for lane in names]
        super().__init__(
            queues,
            name=name,
            connection=connection,
            prepare_for_work=False,
            worker_ttl=60,
            serializer="json",
            log_job_description=False,
        )
        self.hostname, self.pid, self.ip_address = socket.gethostname(), os.getpid(), "unknown"
        self._next_run, self._perform_run = next_run, perform_run
        self._breaker = breaker_of(names[0])
        self._registered_at = -REGISTER_EVERY
        self._run: Any = None
        self.log = logging.getLogger("runcontract.rq")

    # What RQ does around a job, and we do not.

    @property
    def connection_timeout(self) -> float:  # type: ignore[override]
        """RQ would stretch our client's patience to this, and a dead line would go unnoticed."""
        return PATIENT

    def bootstrap(self, *_: Any, **__: Any) -> None:
        """Be born; RQ would also listen for commands that could kill a job behind our back."""
        self.birth_date = self.last_heartbeat = now()
        self.heartbeat()

    def _install_signal_handlers(self) -> None:
        """The child has its own."""

    def request_stop(self, signum: Any, frame: Any) -> None:
        """The child's own handlers decide; never raise out of one."""

    def check_for_suspension(self, burst: bool) -> None:
        """RQ's suspension has no say over runs."""

    def run_maintenance_tasks(self) -> None:
        """RQ's maintenance would fail what it does not understand."""
        self.last_cleaned_at = now()  # type: ignore[assignment]

    def set_state(self, state: str, pipeline: Any = None) -> None:
        """Kept here and shown with the registration, not written twice a run."""
        self._state = state

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Show in RQ's registry that this worker lives, now and then; again after a FLUSHALL."""
        if time.monotonic() - self._registered_at < REGISTER_EVERY or self._breaker.open:
            return
        self._registered_at = time.monotonic()
        try:
            with self._breaker.guard():
                self._register()
        except TransportUnavailable:
            self._registered_at = -REGISTER_EVERY

    def _register(self) -> None:
        self.last_heartbeat = now()
        lifetime = int(4 * REGISTER_EVERY)
        with self.connection.pipeline() as pipe:
            pipe.hset(self.key, mapping={**self.serialize(), "state": str(self._state)})
            pipe.expire(self.key, lifetime)
            register(self, pipe)
            pipe.exists("rq:queues")
            existed = pipe.execute()[-1]
        for queue in self.queues:
            clean_worker_registry(queue)
            self.connection.sadd("rq:queues", queue.key)
        if not existed or self.connection.ttl("rq:queues") != -1:
            self.connection.expire("rq:queues", QUEUES_TTL)

    def register_death(self) -> None:
        """Leave RQ's registry, if Redis is there to be told."""
        try:
            with self._breaker.guard():
                super().register_death()  # type: ignore[no-untyped-call]
        except TransportUnavailable:
            self.log.debug("Redis is away; the registration ends by its own time.")

    def unsubscribe(self) -> None:
        """There is no subscription."""

    # The two hooks.

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[Job, RunQueue] | None:
        """The next run, whichever way it comes; None at the end of a burst."""
        while True:
            self.heartbeat()
            try:
                found = self._next_run(timeout is None)
            except StopIteration:
                raise StopRequested from None
            if found is not None:
                self._run = found[1]
                return self._job, self._queue
            if timeout is None:
                return None

    @property
    def _queue(self) -> RunQueue:
        return self.queues[0]  # type: ignore[return-value]

    @property
    def _job(self) -> Job:
        if not hasattr(self, "_only_job"):
            self._only_job = Job(id="run", connection=self.connection, serializer="json")
        return self._only_job

    def execute_job(self, job: Job, queue: Any) -> None:
        """Do the run that the last dequeue brought. Never raises for a run's sake."""
        self._perform_run(self._run)
