"""What other apps call, in the transaction of the thing that they announce.

The mail is part of that transaction: no commit, no mail. The event's id is the idempotency key: a
double click, a retry or a second worker that announces the same event mails nothing more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256

from django.conf import settings

from runcontract.lifecycle.enqueue import Enqueued

from .models import Delivery


def notify(
    event: str, recipient: str, subject: str, body: str, *, kind: str = "notice"
) -> Enqueued:
    """Enqueue one mail. False if this event was announced already; `run` is that delivery."""
    job_id = f"notify:{event}"
    return Delivery.objects.enqueue(
        job_id=job_id,
        message_id=f"<{sha256(job_id.encode()).hexdigest()[:32]}@notifications.example>",
        event=event,
        recipient=recipient,
        subject=" ".join(subject.split())[:200],
        body=body,
        kind=kind,
    )


def announce_pass(
    event: str, title: str, figures: Mapping[str, object], *, readers: Collection[str] = ()
) -> list[Enqueued]:
    """A digest of a finished pass to each reader, or DIGEST_READERS; one figure a line."""
    body = "\n".join(f"{name}: {figure}" for name, figure in figures.items())
    return [
        notify(f"{event}:{reader}", reader, title, body, kind="digest")
        for reader in readers or settings.DIGEST_READERS
    ]


def announce_dead_letter(event: str, source: str, cause: str) -> Enqueued:
    """A notice to the maintainer of a distribution that could not be harvested."""
    subject = f"{source} could not be harvested"
    return notify(event, f"{source}@maintainers.example", subject, cause, kind="dead letter")


def announce_failed_agent(event: str, asker: str, question: str, cause: str) -> Enqueued:
    """A notice to who asked: there will be no answer, and why."""
    body = f"{question.strip()}\n\n{cause}"
    return notify(event, asker, f"No answer: {question}", body, kind="failed agent")
