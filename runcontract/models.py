"""The contract as abstract models, and the scheduler's own two tables."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Collection, Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models.functions import Now

from .contract import states
from .contract.constraints import contract_constraints, contract_indexes
from .contract.errors import RunError
from .contract.fields import contract_fields
from .contract.policy import RunPolicy
from .lifecycle.bulk import bulk_enqueue
from .lifecycle.enqueue import Enqueued, enqueue
from .lifecycle.requests import cancel, redo

__all__ = [
    "Enqueued",
    "Failure",
    "RetryContract",
    "RunContract",
    "RunManager",
    "SchedulerLease",
    "Tick",
    "new_job_id",
]

R = TypeVar("R", bound="RunContract")


def new_job_id() -> str:
    """The job_id of a run whose caller gave none."""
    return uuid.uuid4().hex


class RunManager(models.Manager[R], Generic[R]):
    """The door to enqueue."""

    def enqueue(
        self,
        *,
        job_id: str | None = None,
        lock_key: str | None = None,
        lane: str | None = None,
        if_locked: str = "skip",
        **own: Any,
    ) -> Enqueued:
        """Insert a queued run in the caller's transaction and dispatch it on commit.

        The answer is true when a run was created; otherwise its `reason` is `duplicate` (this
        job_id is held) or `locked`, and its `run` is the one that stands in the way. With
        `if_locked="rerun"` the lock's holder is asked for one more pass. Raises InvalidRun, a
        ValueError, before anything is written.
        """
        return enqueue(
            self.model, job_id=job_id, lock_key=lock_key, lane=lane, if_locked=if_locked, **own
        )

    def bulk_enqueue(
        self, rows: Iterable[Mapping[str, Any]], *, if_locked: str = "skip"
    ) -> list[Enqueued]:
        """Enqueue any number of runs in a few statements; answers in the order of the rows."""
        return bulk_enqueue(self.model, rows, if_locked=if_locked)


class RunContract(models.Model):
    """Inherit this for a run table of your own, and its Meta with it:

    class CurationRun(RunContract):
        class Meta(RunContract.Meta):
            db_table = "curation_runs"

        def perform(self, ctx): ...
    """

    policy: ClassVar[RunPolicy] = RunPolicy()

    job_id = models.CharField(max_length=255, default=new_job_id, editable=False)
    lock_key = models.CharField(max_length=255, null=True, default=None, editable=False)
    lane = models.CharField(max_length=100, default="default", editable=False)
    state = models.CharField(
        max_length=16,
        default=str(states.State.QUEUED),
        editable=False,
        choices=[(str(state), str(state)) for state in states.State],
    )
    failure = models.CharField(
        max_length=16,
        default="",
        blank=True,
        editable=False,
        choices=[(str(failure), str(failure)) for failure in states.Failure],
    )
    lease = models.BigIntegerField(default=0, editable=False)
    worker = models.CharField(max_length=255, default="", blank=True, editable=False)
    heartbeat_at = models.DateTimeField(null=True, editable=False)
    last_error = models.JSONField(null=True, editable=False, encoder=DjangoJSONEncoder)
    fingerprint = models.CharField(max_length=16, default="", blank=True, editable=False)
    stats = models.JSONField(default=dict, editable=False, encoder=DjangoJSONEncoder)
    rerun_requested = models.BooleanField(default=False, editable=False)
    cancel_requested = models.BooleanField(default=False, editable=False)
    queued_at = models.DateTimeField(db_default=Now(), editable=False)
    dispatched_at = models.DateTimeField(null=True, editable=False)
    started_at = models.DateTimeField(null=True, editable=False)
    finished_at = models.DateTimeField(null=True, editable=False)
    held_until = models.DateTimeField(null=True, editable=False)
    released_at = models.DateTimeField(null=True, editable=False)

    objects: ClassVar[RunManager[Any]] = RunManager()

    class Meta:
        abstract = True
        constraints = contract_constraints()
        indexes = contract_indexes("dispatched_at")

    def __str__(self) -> str:
        return f"{self._meta.label} {self.job_id}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the consumer's own columns; the contract's are written by transitions only.

        An existing row is never inserted again: if it was deleted meanwhile, this raises
        DatabaseError as `save(update_fields=…)` does. A new instance is only inserted: one made
        with the key of an existing row raises IntegrityError, rather than overwrite it.
        """
        wanted, forced = kwargs.get("update_fields"), kwargs.get("force_update")
        if self._state.adding and wanted is None and not forced:
            kwargs["force_insert"] = kwargs.get("force_insert") or True
        elif not kwargs.get("force_insert"):
            kwargs["update_fields"] = self._own_columns(wanted)
            if not kwargs["update_fields"]:
                return
        super().save(*args, **kwargs)

    def perform(self, ctx: Any) -> Awaitable[None] | None:
        """The consumer's work, or a coroutine of it. Returning is success, raising is failure."""
        raise NotImplementedError(f"{self._meta.label} has no perform(self, ctx).")

    def on_failed(self, error: RunError) -> None:
        """The consumer's home for a failure, in the transaction that settles the run."""

    def redo(self) -> Enqueued:
        """What doing it again means: here a new run with the same job_id and own fields."""
        return redo(self)

    def cancel(self) -> str:
        """`cancelled` at once if queued, `asked` if running, otherwise `ended` or `gone`."""
        return cancel(self)

    def _own_columns(self, wanted: Collection[str] | None) -> list[str]:
        contract = contract_fields([field.name for field in self._meta.concrete_fields])
        if wanted is not None:
            return [name for name in wanted if name not in contract]
        deferred = self.get_deferred_fields()
        return [
            field.name
            for field in self._meta.concrete_fields
            if field.name not in contract
            and not field.primary_key
            and not field.generated
            and field.attname not in deferred
        ]


class RetryContract(RunContract):
    """The contract for consumers that retry by counter: attempts, and a deferred start."""

    attempts = models.PositiveIntegerField(default=0, editable=False)
    next_retry_at = models.DateTimeField(null=True, editable=False)

    class Meta(RunContract.Meta):
        abstract = True
        constraints = contract_constraints()
        indexes = contract_indexes("dispatched_at", "next_retry_at")

    def redo(self) -> Enqueued:
        """What doing it again means: here the same row, queued with a fresh allowance."""
        return redo(self)


class SchedulerLease(models.Model):
    """Which scheduler leads. A singleton is an economy; the constraints are the guarantee."""

    name = models.CharField(max_length=64, primary_key=True)
    holder = models.CharField(max_length=255)
    term = models.BigIntegerField(default=1)
    expires_at = models.DateTimeField()
    epochs = models.JSONField(default=dict)
    """The epoch of each Redis server after whose beginning everything due was dispatched."""

    def __str__(self) -> str:
        return f"{self.name}: {self.holder}, term {self.term}"


class Tick(models.Model):
    """One fire time of one schedule and what came of it. UNIQUE: it cannot fire twice."""

    OUTCOMES = [(name, name) for name in ("enqueued", "duplicate", "locked", "skipped", "failed")]

    schedule = models.CharField(max_length=200)
    fire_at = models.DateTimeField()
    outcome = models.CharField(max_length=16, choices=OUTCOMES)
    job_id = models.CharField(max_length=255, blank=True, default="")
    detail = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["schedule", "fire_at"], name="runcontract_tick_once")
        ]

    def __str__(self) -> str:
        return f"{self.schedule} at {self.fire_at:%Y-%m-%d %H:%M %Z}: {self.outcome}"


class Failure(Tick):
    """The failure page's place in the admin: its name, its address and its permission.

    A proxy rather than an unmanaged model, for `dumpdata` would look for the latter's table.
    """

    class Meta:
        proxy = True
        default_permissions = ("view",)
        verbose_name_plural = "Failures"
