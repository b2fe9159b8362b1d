"""What should be harvested and is not is enqueued, once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now
from pytest_django import Settings

from demo_project.harvester.models import (
    DeadLetter,
    Harvest,
    HarvestRun,
    ReconcileRun,
    Source,
    reconcile,
    retry_dead_letters,
)
from demo_project.origin import Origin
from runcontract import RunContext
from runcontract.scheduler.schedules import schedules
from tests.support.race import race, values
from tests.support.wait import eventually

from .conftest import metadata

T = TypeVar("T")

pytestmark = pytest.mark.django_db


def harvest(name: str) -> Harvest:
    """The source is harvested, and its run has succeeded."""
    source = Source.objects.get(name=name)
    end(name, "succeeded")
    return Harvest.objects.update_or_create(
        source=source,
        defaults={
            "generation": source.generation,
            "version": source.version,
            "harvested_at": Now(),
        },
    )[0]


def bury(name: str) -> DeadLetter:
    """The source's run has failed, and lies in its dead letter."""
    end(name, "failed", failure="permanent")
    return DeadLetter.objects.create(
        source=Source.objects.get(name=name), job_id="j", failure="permanent", cause="404", at=Now()
    )


def end(name: str, state: str, **more: Any) -> None:
    HarvestRun.objects.filter(source__name=name, finished_at=None).update(
        state=state, finished_at=Now(), held_until=Now(), **more
    )


def jobs() -> list[str]:
    return sorted(HarvestRun.objects.filter(finished_at=None).values_list("job_id", flat=True))


def one_behind_the_other(act: Callable[[], T]) -> tuple[T, T]:
    """What it returns here, and on a connection that had to wait for our commit."""
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            first = act()
            second = pool.submit(race, act)
            eventually(somebody_waits)
        (outcome,) = values(second.result(30))
    return first, outcome


def somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")
        row = cursor.fetchone()
    return bool(row and row[0])


def test_second_reconcile_finds_nothing_to_do(origin: Origin) -> None:
    assert str(reconcile()) == (
        "reconcile: 3 listed, 3 enqueued, 0 under way, 0 dead letters, 0 harvested"
    )
    assert jobs() == ["harvest:a:1", "harvest:b:1", "harvest:c:1"]
    harvest("a")
    bury("b")
    assert str(reconcile()) == (
        "reconcile: 3 listed, 0 enqueued, 1 under way, 1 dead letters, 1 harvested"
    )
    assert jobs() == ["harvest:c:1"]


def test_run_travels_in_the_bulk_lane_and_locks_its_source(origin: Origin) -> None:
    reconcile()
    run = HarvestRun.objects.get(job_id="harvest:a:1")
    assert (run.lane, run.lock_key, run.state) == ("bulk", "source:a", "queued")


def test_new_version_is_harvested_again_even_from_a_dead_letter(origin: Origin) -> None:
    reconcile()
    harvest("a")
    bury("b")
    for name in ("a", "b"):
        origin.catalogue[name] = metadata(name, "2.0")
    assert reconcile().enqueued == 2
    assert jobs() == ["harvest:a:2", "harvest:b:2", "harvest:c:1"]
    assert not DeadLetter.objects.filter(picked_at=None).exists()


def test_source_that_is_listed_no_more_is_left_alone_until_it_is_back(origin: Origin) -> None:
    reconcile()
    end("a", "failed", failure="cancelled")
    HarvestRun.objects.update(released_at=F("finished_at"))
    kept = origin.catalogue.pop("a")
    assert reconcile().enqueued == 0
    origin.catalogue["a"] = kept
    assert reconcile().enqueued == 1


def test_removed_harvest_is_made_again_although_its_job_id_is_held(origin: Origin) -> None:
    reconcile()
    harvest("a").delete()
    assert reconcile().enqueued == 1
    assert "harvest:a:2" in jobs()


def test_anew_asks_again_for_all_that_is_at_rest(origin: Origin) -> None:
    reconcile()
    harvest("a")
    bury("b")
    assert reconcile(anew=True).enqueued == 2
    assert jobs() == ["harvest:a:2", "harvest:b:2", "harvest:c:1"]


@pytest.mark.django_db(transaction=True)
def test_four_at_once_enqueue_each_source_once(origin: Origin) -> None:
    assert sum(done.enqueued for done in values(race(*[reconcile] * 4))) == 3
    assert jobs() == ["harvest:a:1", "harvest:b:1", "harvest:c:1"]


@pytest.mark.django_db(transaction=True)
def test_reconcile_waits_for_another_and_then_finds_nothing_to_do(origin: Origin) -> None:
    reconcile()
    harvest("a")
    origin.catalogue["a"] = metadata("a", "2.0")
    first, second = one_behind_the_other(reconcile)
    assert (first.enqueued, second.enqueued) == (1, 0)
    assert Source.objects.get(name="a").generation == 2


def test_dead_letter_is_picked_up_once(origin: Origin) -> None:
    reconcile()
    letter = bury("a")
    bury("b")
    assert str(retry_dead_letters(["a"])) == "dlq_retry: 1 picked up, 1 enqueued"
    letter.refresh_from_db()
    assert letter.picked_at
    assert "harvest:a:2" in jobs()
    assert str(retry_dead_letters(["a"])) == (
        "dlq_retry: 0 picked up, 0 enqueued, no open dead letter: a"
    )
    assert str(retry_dead_letters()) == "dlq_retry: 1 picked up, 1 enqueued"
    assert str(retry_dead_letters()) == "dlq_retry: 0 picked up, 0 enqueued"


@pytest.mark.django_db(transaction=True)
def test_retry_waits_for_another_and_then_finds_nothing_to_do(origin: Origin) -> None:
    reconcile()
    for name in ("a", "b", "c"):
        bury(name)
    first, second = one_behind_the_other(retry_dead_letters)
    assert (first.picked, second.picked) == (3, 0)
    assert jobs() == ["harvest:a:2", "harvest:b:2", "harvest:c:2"]


def test_reconcile_runs_nightly(origin: Origin) -> None:
    (nightly,) = [each for each in schedules() if each.name == "nightly-reconcile"]
    assert nightly.model is ReconcileRun
    ctx = RunContext(job_id="r", attempt=1, lease=1, note=lambda _: None, interrupt=lambda: None)
    ReconcileRun().perform(ctx)
    assert ctx.stats["steps"][0]["counts"] == {"listed": 3, "enqueued": 3}
    assert len(jobs()) == 3


def test_commands_print_one_line(origin: Origin, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("reconcile")
    call_command("dlq_retry", "nobody")
    assert capsys.readouterr().out == (
        "reconcile: 3 listed, 3 enqueued, 0 under way, 0 dead letters, 0 harvested\n"
        "dlq_retry: 0 picked up, 0 enqueued, no open dead letter: nobody\n"
    )


def test_reconcile_without_an_origin_says_so(settings: Settings) -> None:
    settings.ORIGIN_URL = "http://127.0.0.1:9"
    with pytest.raises(CommandError, match="origin's index cannot be read"):
        call_command("reconcile")
