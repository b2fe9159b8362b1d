"""The journal's deliveries against what the mail server says that it accepted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from .models import Delivery

INTERRUPTIONS = ("lost", "timeouts", "given_back")
"""The counters of executions that may have ended after the server's yes, unnoted."""


def interruptions(delivery: Delivery) -> int:
    """How often an execution of this delivery was cut off."""
    return sum(int(delivery.stats.get(name, 0)) for name in INTERRUPTIONS)


def unaccounted(accepted: Mapping[str, int], since: datetime) -> Iterator[str]:
    """What speaks against "each mail once, or twice where a worker was lost"; nothing if it holds.

    `accepted` counts each message-id that the server took; `since` bounds the deliveries that it
    can know.
    """
    rows = {each.message_id: each for each in Delivery.objects.all()}
    for message_id, times in accepted.items():
        row = rows.get(message_id)
        if row is None:
            yield f"{message_id} was accepted, and no delivery has it"
        elif times > bool(row.delivered_at) + interruptions(row):
            yield f"{row.job_id} was accepted {times} times, {interruptions(row)} interruptions"
    for row in rows.values():
        if row.delivered_at and row.delivered_at >= since and not accepted.get(row.message_id):
            yield f"{row.job_id} is delivered, and the server never saw it"
