"""The delivery: one mail to one recipient, which is at the same time the run that sends it."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email
from django.db import models, transaction

from runcontract import PermanentError, RunContext, RunError, RunPolicy
from runcontract.lifecycle.enqueue import Enqueued
from runcontract.models import RetryContract

from .mail import send

REMEMBERED = timedelta(days=30)
"""How long an event is known, so that it is not announced a second time."""


class Delivery(RetryContract):
    """What is to be mailed and to whom, how far it is, and why it was not delivered.

    A worker lost between the server's yes and the settle makes the mail go out once more, with the
    same Message-ID, by which a mailbox knows it again: better twice than never.
    """

    event = models.CharField(max_length=240, help_text="The id of what is announced.")
    kind = models.CharField(max_length=20)
    recipient = models.EmailField()
    subject = models.CharField(max_length=200)
    body = models.TextField()
    message_id = models.CharField(
        max_length=80, help_text="Each attempt at this delivery carries the same one."
    )
    not_delivered = models.TextField(
        blank=True, default="", editable=False, help_text="Why not, in the server's words."
    )

    policy = RunPolicy(
        lane="default",
        on_lost="retry",
        max_attempts=6,
        max_lost=6,
        timeout=timedelta(seconds=30),
        hold_succeeded=REMEMBERED,
        hold_failed=REMEMBERED,
    )

    class Meta(RetryContract.Meta):
        db_table = "deliveries"
        verbose_name_plural = "deliveries"

    @property
    def delivered_at(self) -> datetime | None:
        """When the server took it: the settle says so, there is nothing else to be written."""
        return self.finished_at if self.state == "succeeded" else None

    def perform(self, ctx: RunContext) -> None:
        """Write it and send it. Returning says that the server took it."""
        try:
            with ctx.step("write") as step:
                mail = self.mail()
                step.count(bytes=len(mail.message().as_bytes()))
            with ctx.step("send"):
                send(mail)
        except ValueError as error:
            raise PermanentError(f"This cannot be mailed: {error}") from error

    def mail(self) -> EmailMessage:
        """The mail; its From is DEFAULT_FROM_EMAIL. Raises ValueError for a recipient that is none.

        An address is judged here and not when it is announced, so that its home is the row.
        """
        try:
            validate_email(self.recipient)
        except ValidationError as error:
            raise ValueError(f"{self.recipient!r} is no address") from error
        headers = {"Message-ID": self.message_id, "Auto-Submitted": "auto-generated"}
        return EmailMessage(self.subject, self.body, to=[self.recipient], headers=headers)

    def on_failed(self, error: RunError) -> None:
        """In the transaction that settles: the row itself says "not delivered", and why."""
        Delivery.objects.filter(pk=self.pk).update(not_delivered=error.message or error.type)

    def redo(self) -> Enqueued:
        """Resend: the same row and the same Message-ID, with as many attempts as at first."""
        with transaction.atomic():
            again = super().redo()
            if again:
                Delivery.objects.filter(pk=self.pk).update(not_delivered="")
        return again
