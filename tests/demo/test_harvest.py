"""One harvest: what it stores, and where its failure goes."""

from typing import Any

import pytest
from django.db import transaction

from demo_project.harvester.client import Metadata
from demo_project.harvester.models import DeadLetter, Harvest, HarvestRun, Source
from demo_project.origin import Act, Origin
from runcontract import PermanentError, RunContext, TransientError
from runcontract.contract.errors import RunError
from runcontract.contract.states import Failure
from runcontract.lifecycle import transitions
from runcontract.lifecycle.table import table_of

from .conftest import behave

pytestmark = pytest.mark.django_db

NOT_FOUND = RunError("PermanentError", "/dist/a: 404", "", 1, "permanent")


@pytest.fixture
def source() -> Source:
    return Source.objects.create(name="a", version="1.0")


def claimed(source: Source, generation: int = 1) -> Any:
    """A run of this source that a worker has claimed."""
    answer = HarvestRun.objects.enqueue(
        job_id=f"harvest:{source.name}:{generation}",
        lock_key=f"source:{source.name}",
        source=source,
        generation=generation,
    )
    run = transitions.claim(table_of(HarvestRun), answer.run.pk, 0, "a worker")
    assert run is not None
    return run


def perform(run: HarvestRun) -> dict[str, Any]:
    """Perform it here; its step stats."""
    ctx = RunContext(
        job_id=run.job_id, attempt=1, lease=1, note=lambda _: None, interrupt=lambda: None
    )
    run.perform(ctx)
    return {step["name"]: step for step in ctx.stats["steps"]}


def test_metadata_is_stored_with_its_step_stats(origin: Origin, source: Source) -> None:
    steps = perform(claimed(source))
    harvest = Harvest.objects.get(source=source)
    assert (harvest.version, harvest.summary, harvest.generation) == ("1.0", "a!", 1)
    assert harvest.requires_dist == ["b>=1"]
    assert list(steps) == ["fetch", "parse", "store"]
    assert steps["fetch"]["counts"]["bytes"] > 0
    assert steps["parse"]["counts"] == {"requirements": 1}


def test_performed_twice_it_is_stored_once(origin: Origin, source: Source) -> None:
    run = claimed(source)
    perform(run)
    perform(run)
    assert Harvest.objects.filter(source=source).count() == 1


def test_older_generation_does_not_overwrite_a_newer_one(source: Source) -> None:
    run = claimed(source, generation=2)
    run.store(Metadata(name="a", version="2.0"))
    HarvestRun(source=source, generation=1).store(Metadata(name="a", version="1.0"))
    assert Harvest.objects.get(source=source).version == "2.0"


def test_misbehaviour_is_raised_as_what_it_is(origin: Origin, source: Source) -> None:
    behave(origin, "a", Act.UNAVAILABLE, then=Act.NOT_FOUND)
    run = claimed(source)
    with pytest.raises(TransientError):
        perform(run)
    with pytest.raises(PermanentError):
        perform(run)


def test_failure_settles_into_a_dead_letter(source: Source) -> None:
    run = claimed(source)
    transitions.fail(run, Failure.PERMANENT, NOT_FOUND, {})
    run.refresh_from_db()
    letter = DeadLetter.objects.get(source=source)
    assert run.state == "failed"
    assert (letter.job_id, letter.failure, letter.cause) == (
        "harvest:a:1",
        "permanent",
        "/dist/a: 404",
    )
    assert letter.picked_at is None


@pytest.mark.django_db(transaction=True)
def test_settle_that_is_rolled_back_leaves_no_dead_letter(source: Source) -> None:
    run = claimed(source)
    with transaction.atomic():
        transitions.fail(run, Failure.PERMANENT, NOT_FOUND, {})
        transaction.set_rollback(True)
    run.refresh_from_db()
    assert run.state == "running"
    assert not DeadLetter.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_dead_letter_that_cannot_be_written_does_not_hold_up_the_settle(source: Source) -> None:
    run = claimed(source)
    refused = RunError("PermanentError", "404", "", 1, "longer than the column")
    transitions.fail(run, Failure.PERMANENT, refused, {})
    run.refresh_from_db()
    assert run.state == "failed"
    assert "too long" in run.last_error["on_failed"]
    assert not DeadLetter.objects.exists()


def test_second_failure_finds_the_open_dead_letter(source: Source) -> None:
    transitions.fail(claimed(source), Failure.PERMANENT, NOT_FOUND, {})
    later = RunError("TransientError", "503", "", 6, "exhausted")
    transitions.fail(claimed(source, 2), Failure.EXHAUSTED, later, {})
    letter = DeadLetter.objects.get(source=source)
    assert (letter.job_id, letter.cause) == ("harvest:a:2", "503")


def test_success_closes_the_open_dead_letter(origin: Origin, source: Source) -> None:
    run = claimed(source)
    transitions.fail(run, Failure.PERMANENT, NOT_FOUND, {})
    perform(run)
    assert DeadLetter.objects.get(source=source).picked_at
