"""Harvested catalogues, and passes over them in this very process."""

from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from demo_project.harvester.models import Harvest, Source
from demo_project.knowledge.graph import graph_as_json
from demo_project.knowledge.models import CurationRun
from runcontract import RunContext


def harvest(name: str, *requires: str, version: str = "1.0", licence: str = "MIT") -> None:
    """This distribution is harvested, without a run."""
    source, _ = Source.objects.get_or_create(name=name, defaults={"version": version})
    told = {"version": version, "license": licence, "requires_dist": list(requires)}
    Harvest.objects.update_or_create(
        source=source, defaults={**told, "generation": source.generation, "harvested_at": Now()}
    )


def context(run: Any, lease: int = 1, **more: Any) -> RunContext:
    """What a worker would give to this run."""
    never: Any = {"note": lambda _: None, "interrupt": lambda: None} | more
    return RunContext(job_id=run.job_id, attempt=1, lease=lease, **never)


@transaction.atomic
def curate() -> dict[str, Any]:
    """One pass, as the policy has it in one transaction; its stats."""
    run = CurationRun(job_id="by hand")
    ctx = context(run)
    run.perform(ctx)
    return {step["name"]: step.get("counts", {}) for step in ctx.stats["steps"]}


def edges() -> set[tuple[str, str]]:
    return {(edge["source"], edge["target"]) for edge in graph_as_json()["edges"]}
