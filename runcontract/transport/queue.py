"""The queue class that keeps RQ's own tools from eating our messages.

RQ removes each id that has no job hash from its queue when somebody looks at it, and our messages
never have one. Nothing here reads a hash: what lies under such a key may be forged.
"""

from __future__ import annotations

from typing import Any

from rq import Queue
from rq.job import Job, JobStatus

from ..contract.address import Address


class Message(Job):
    """A message as RQ's tools show it: the id alone, whatever lies under its key."""

    def get_status(self, refresh: bool = True) -> JobStatus:
        """Queued, for it lies in a lane."""
        return JobStatus.QUEUED


class RunQueue(Queue):
    """Shows runs to `rq info` and to django-rq's pages without touching the lane.

    It takes effect through the global `RQ = {"QUEUE_CLASS": "runcontract.transport.RunQueue"}`.
    A queue of ordinary RQ jobs beside the lanes names its own QUEUE_CLASS in RQ_QUEUES.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As RQ's, but what is read by way of this queue is JSON and never a pickle."""
        super().__init__(*args, **kwargs | {"serializer": "json"})

    def fetch_job(self, job_id: str) -> Job | None:
        """None: whoever asks for one job wants times that a message does not have."""
        return None

    def get_job_ids(self, offset: int = 0, length: int = -1) -> list[str]:
        """A slice of the messages, whatever their bytes."""
        if length == 0:
            return []
        last = offset + length - 1 if length > 0 else -1
        found: Any = self.connection.lrange(self.key, offset, last)
        return [message[:256].decode(errors="replace") for message in found]

    def get_jobs(self, offset: int = 0, length: int = -1) -> list[Job]:
        """A slice of the lane, made from the ids alone; those that no job can have are left out."""
        made = (self._message(job_id) for job_id in self.get_job_ids(offset, length))
        return [job for job in made if job is not None]

    def compact(self) -> None:
        """Nothing to do: RQ's own would delete every message that has no hash."""

    def _message(self, job_id: str) -> Message | None:
        address = Address.parse(job_id)
        try:
            job = Message(id=job_id, connection=self.connection, serializer=self.serializer)
        except ValueError:
            return None
        job.origin = self.name
        # A message does not say when it was sent.
        job.created_at = None  # type: ignore[assignment]
        job.description = (
            f"{address.label} {address.pk}, lease {address.lease}"
            if address
            else "Not a run: a worker will drop this message."
        )
        job._func_name = job.description  # noqa: SLF001 - or RQ would look for it in the hash
        job._args, job._kwargs, job._instance = (), {}, None  # noqa: SLF001
        return job
