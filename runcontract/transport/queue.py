"""The queue class that keeps RQ's own tools from eating our messages.

RQ removes each id that has no job hash from its queue when somebody looks at it, and our messages
never have one. Nothing here reads a hash: what lies under such a key may be forged.
"""

from __future__ import annotations

from rq import Queue
from rq.job import Job

from ..contract.address import Address


class RunQueue(Queue):
    """Shows runs to `rq info` and to django-rq's pages without touching the lane.

    It takes effect through the global `RQ = {"QUEUE_CLASS": "runcontract.transport.RunQueue"}`.
    A queue of ordinary RQ jobs beside the lanes names its own QUEUE_CLASS in RQ_QUEUES.
    """

    def fetch_job(self, job_id: str) -> Job | None:
        """A job made from the id alone; never removes the id, never reads a hash."""
        address = Address.parse(job_id)
        try:
            job = Job(id=job_id, connection=self.connection, serializer=self.serializer)
        except ValueError:
            return None
        job.origin = self.name
        # A message does not say when it was sent, and django-rq's front page must have a time.
        job.enqueued_at = job.created_at
        job.description = (
            f"{address.label} {address.pk}, lease {address.lease}"
            if address
            else "Not a run: a worker will drop this message."
        )
        job._func_name = job.description  # noqa: SLF001 - or RQ would look for it in the hash
        job._args, job._kwargs, job._instance = (), {}, None  # noqa: SLF001
        return job

    def compact(self) -> None:
        """Nothing to do: RQ's own would delete every message that has no hash."""
