"""The pass that curates the graph."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.dispatch import receiver

from demo_project.harvester.models import harvested
from demo_project.harvester.signals import catalogue_changed
from runcontract import RunContext, RunError, RunPolicy
from runcontract.models import Enqueued, RunContract

from .curate import link, parse, rank
from .graph import Edge, Entity

LOCK = "graph"
LOST_IN_A_ROW = 3
"""Passes that lost their workers, after which none is asked for by itself."""


class CurationRun(RunContract):
    """One pass, in one transaction. Again means: the next pass, a new run."""

    policy = RunPolicy(lane="bulk", atomic=True, timeout=timedelta(minutes=2))

    class Meta(RunContract.Meta):
        db_table = "curation_runs"

    def perform(self, ctx: RunContext) -> None:
        """Curate the whole graph anew."""
        with ctx.step("collect") as step:
            catalogue = harvested()
            step.count(distributions=len(catalogue))
        with ctx.step("parse") as step:
            parsed = [parse(metadata) for metadata in catalogue]
            step.count(requirements=sum(len(requirements) for _, requirements in parsed))
            step.count(unreadable=sum(len(entity.unreadable) for entity, _ in parsed))
        with ctx.step("link") as step:
            edges = link({entity.name: requirements for entity, requirements in parsed})
            step.count(edges=len(edges))
        with ctx.step("rank") as step:
            entities = rank([entity for entity, _ in parsed], edges)
            step.count(entities=len(entities), orphans=sum(each.orphan for each in entities))
            step.count(conflicts=sum(edge.conflict for edge in edges))
        with ctx.step("prune") as step:
            kept = [entity.name for entity in entities]
            step.count(vanished=Entity.objects.exclude(name__in=kept).count())
            Edge.objects.all().delete()
            Entity.objects.all().delete()
        with ctx.step("store"):
            Entity.objects.bulk_create(entities)
            Edge.objects.bulk_create(edges)

    def on_failed(self, error: RunError) -> None:
        """A lost worker says nothing against its pass: the next one follows, within limits."""
        passes = CurationRun.objects.order_by("-pk").values_list("failure", flat=True)
        if error.failure == "stale" and [*passes[:LOST_IN_A_ROW]] != ["stale"] * LOST_IN_A_ROW:
            request_curation()


@receiver(catalogue_changed)
def request_curation(**_: Any) -> Enqueued:
    """Ask for a pass that sees what the caller's transaction changes.

    One that is queued or runs is asked for one more when it ends, so many requests make one pass.
    """
    return CurationRun.objects.enqueue(lock_key=LOCK, if_locked="rerun")
