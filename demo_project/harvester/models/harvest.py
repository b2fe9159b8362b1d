"""The run that harvests one source."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.db import models, transaction
from django.db.models.functions import Now

from demo_project.notifications.announce import announce_dead_letter
from runcontract import RunContext, RunError, RunPolicy
from runcontract.models import RetryContract

from ..client import Metadata, fetch_metadata
from ..signals import catalogue_changed
from .catalogue import DeadLetter, Harvest, Source


class HarvestRun(RetryContract):
    """One harvest of one source. Doing it twice does no harm, so a lost worker's is retried."""

    source = models.ForeignKey(Source, on_delete=models.CASCADE, related_name="runs")
    generation = models.PositiveIntegerField()

    policy = RunPolicy(
        lane="bulk", on_lost="retry", max_attempts=6, max_lost=6, timeout=timedelta(seconds=30)
    )

    class Meta(RetryContract.Meta):
        db_table = "harvest_runs"

    def perform(self, ctx: RunContext) -> None:
        """Fetch, check, store."""
        name = self.source.name
        with ctx.step("fetch") as step:
            body = fetch_metadata(name)
            step.count(bytes=len(body))
        with ctx.step("parse") as step:
            metadata = Metadata.parse(body, name)
            step.count(requirements=len(metadata.requires_dist))
        with ctx.step("store"):
            self.store(metadata)

    @transaction.atomic
    def store(self, metadata: Metadata) -> None:
        """The harvest, unless there is one that was asked for later; its dead letter is history."""
        source = Source.objects.select_for_update().get(pk=self.source_id)
        if Harvest.objects.filter(source=source, generation__gt=self.generation).exists():
            return
        told: dict[str, Any] = asdict(metadata)
        del told["name"]
        Harvest.objects.update_or_create(
            source=source,
            defaults={**told, "generation": self.generation, "harvested_at": Now()},
        )
        source.dead_letters.filter(picked_at=None).update(picked_at=Now())
        catalogue_changed.send(HarvestRun)

    def on_failed(self, error: RunError) -> None:
        """In the transaction that settles: the failure moves into this app's home, announced."""
        DeadLetter.objects.update_or_create(
            source_id=self.source_id,
            picked_at=None,
            defaults={
                "job_id": self.job_id,
                "failure": error.failure,
                "cause": error.message,
                "at": Now(),
            },
        )
        announce_dead_letter(f"dead-letter:{self.job_id}", self.source.name, error.message)
