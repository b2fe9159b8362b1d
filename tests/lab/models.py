"""The lab's run models. What a run does is named by its `task`, see tasks.py."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models

from runcontract import RunPolicy
from runcontract.models import RetryContract, RunContract

from . import tasks
from .effects import recorded


class Order(models.Model):
    """Something that a job is about."""

    name = models.CharField(max_length=100, default="order")
    amount = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name} {self.pk}"


class Effect(models.Model):
    """One line for each real execution, written by effects.py whatever becomes of the run."""

    model = models.CharField(max_length=50)
    job_id = models.CharField(max_length=255)
    attempt = models.IntegerField()
    lease = models.BigIntegerField()
    pid = models.IntegerField()
    start = models.DateTimeField()
    end = models.DateTimeField(null=True)

    class Meta:
        ordering = ("start",)

    def __str__(self) -> str:
        return f"{self.model} {self.job_id}, attempt {self.attempt}, pid {self.pid}"


class LabWork(models.Model):
    """The lab's own columns: which task, with what, and where it leaves its traces."""

    task = models.TextField(default="succeed")
    args = models.JSONField(default=dict)
    hook = models.TextField(default="", blank=True)
    """A function in tasks.HOOKS that `on_failed` calls."""
    progress = models.IntegerField(default=0)
    note = models.TextField(default="", blank=True)

    class Meta:
        abstract = True

    def perform(self, ctx: Any) -> None:
        if self.task == "unrecorded":
            return
        with recorded(self, ctx):
            tasks.TASKS[self.task](self, ctx, **self.args)

    def on_failed(self, error: Any) -> None:
        if self.hook:
            tasks.HOOKS[self.hook](self, error)


class MailRun(LabWork, RetryContract):
    """The ordinary one."""

    class Meta(RetryContract.Meta):
        pass


class Receipt(models.Model):
    """Something that must not lose the run it is about."""

    run = models.ForeignKey(MailRun, on_delete=models.PROTECT)

    def __str__(self) -> str:
        return f"receipt of {self.run_id}"


class SyncRun(LabWork, RetryContract):
    """A second table, about an order."""

    order = models.ForeignKey(Order, null=True, on_delete=models.PROTECT)

    class Meta(RetryContract.Meta):
        pass


class PassRun(LabWork, RunContract):
    """No counter: it is redone by a new run."""

    class Meta(RunContract.Meta):
        pass


class AtomicRun(LabWork, RetryContract):
    """Its effects in Postgres are exactly once."""

    policy = RunPolicy(atomic=True)

    class Meta(RetryContract.Meta):
        pass


class AgainRun(LabWork, RetryContract):
    """Run again when its worker was lost."""

    policy = RunPolicy(on_lost="retry")

    class Meta(RetryContract.Meta):
        pass


class UuidRun(LabWork, RetryContract):
    """Its primary key is a UUID."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)

    class Meta(RetryContract.Meta):
        pass


class OtherRun(LabWork, RetryContract):
    """Lives in the database `jobs`."""

    class Meta(RetryContract.Meta):
        pass


class AsyncRun(LabWork, RetryContract):
    """Its perform is a coroutine."""

    class Meta(RetryContract.Meta):
        pass

    async def perform(self, ctx: Any) -> None:  # type: ignore[override]
        with recorded(self, ctx):
            await tasks.ASYNC_TASKS[self.task](self, ctx, **self.args)
