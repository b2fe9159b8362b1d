"""One pass at a time, none lost, and nobody ever sees half a graph."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection, transaction

from demo_project.harvester.client import Metadata
from demo_project.harvester.models import Harvest, HarvestRun, Source, reconcile
from demo_project.knowledge.graph import graph_as_json
from demo_project.knowledge.models import LOCK, CurationRun, request_curation
from demo_project.knowledge.models import curation as passes
from demo_project.origin import Origin
from runcontract import LeaseLost, RunError
from runcontract.lifecycle import transitions
from runcontract.lifecycle.table import table_of
from runcontract.scheduler.schedules import schedules
from tests.support.lab import ended, in_state
from tests.support.race import race, values
from tests.support.wait import eventually

from .graphs import context, curate, edges, harvest

pytestmark = pytest.mark.django_db(transaction=True)


def store(name: str, *requires: str) -> None:
    """A harvest ends well."""
    source, _ = Source.objects.get_or_create(name=name, defaults={"version": "1"})
    run = HarvestRun(source=source, generation=source.generation)
    run.store(Metadata(name, "1", requires_dist=list(requires)))


def at_rest() -> list[CurationRun]:
    """All passes, oldest first, once none is active."""
    eventually(lambda: not CurationRun.objects.filter(finished_at=None).exists(), 30)
    return list(CurationRun.objects.order_by("started_at"))


@contextmanager
def store_blocked() -> Iterator[None]:
    """While open, a pass comes as far as its first write, and readers read on."""
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE knowledge_entity IN SHARE MODE")
            ready.set()
            done.wait(60)
        connection.close()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield
    finally:
        done.set()
        thread.join(10)


def waits_for_the_block() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return cursor.fetchone() is not None


def test_harvests_in_a_storm_are_all_in_the_graph_by_one_pass_at_a_time(
    redis_server: Any, start_worker: Any
) -> None:
    worker = start_worker("bulk", "--processes", "3")
    names = [f"d{number}" for number in range(60)]

    def some(first: int) -> None:
        for name in names[first::4]:
            store(name, f"{name}-base")

    values(race(*[lambda first=first: some(first) for first in range(4)]))
    runs = at_rest()
    assert {run.state for run in runs} == {"succeeded"}
    assert edges() == {(name, f"{name}-base") for name in names}
    assert 1 < len(runs) < len(names)
    for before, after in pairwise(runs):
        assert before.finished_at
        assert after.started_at
        assert before.finished_at <= after.started_at
    worker.stop()


def test_harvest_that_arrives_during_a_pass_is_seen_by_the_next(
    redis_server: Any, start_worker: Any
) -> None:
    store("a", "b")
    worker = start_worker("bulk")
    with store_blocked():
        run = in_state(CurationRun.objects.get(), "running")
        eventually(waits_for_the_block)
        store("c", "d")
        store("e", "f")
    runs = at_rest()
    assert [each.state for each in runs] == ["succeeded"] * len(runs)
    assert [each.job_id for each in runs[:2]] == [run.job_id, f"{run.job_id}~2"]
    assert edges() == {("a", "b"), ("c", "d"), ("e", "f")}
    worker.stop()


def test_killed_pass_shows_nothing_and_a_new_run_takes_its_place(
    redis_server: Any, start_worker: Any
) -> None:
    harvest("old", "older")
    curate()
    before = graph_as_json()
    store("new", "newer")
    worker = start_worker("bulk")
    with store_blocked():
        run = in_state(CurationRun.objects.get(), "running")
        eventually(waits_for_the_block)
        os.kill(worker.children()[0], signal.SIGKILL)
        ended(run)
        assert graph_as_json() == before
    assert (run.state, run.failure) == ("failed", "stale")
    assert [each.state for each in at_rest()] == ["failed", "succeeded"]
    assert edges() == {("old", "older"), ("new", "newer")}
    worker.stop()


def test_failed_pass_keeps_its_cause_and_steps_and_redo_is_a_new_run(
    redis_server: Any, start_worker: Any
) -> None:
    harvest("a", "b")
    Harvest.objects.update(requires_dist=5)
    request_curation()
    worker = start_worker("bulk")
    run = ended(CurationRun.objects.get())
    assert (run.state, run.failure) == ("failed", "permanent")
    assert run.last_error["type"] == "TypeError"
    assert [(step["name"], step["failed"]) for step in run.last_error["steps"]] == [
        ("collect", False),
        ("parse", True),
    ]
    Harvest.objects.update(requires_dist=["b"])
    again = run.redo()
    assert again.created
    assert again.run.pk != run.pk
    assert ended(again.run).state == "succeeded"
    names = ["collect", "parse", "link", "rank", "prune", "store"]
    assert [step["name"] for step in again.run.stats["steps"]] == names
    assert edges() == {("a", "b")}
    worker.stop()


def claimed() -> CurationRun:
    """The queued pass, taken by a worker that is never heard of again."""
    run = CurationRun.objects.get(state="queued")
    taken = transitions.claim(table_of(CurationRun), run.pk, run.lease, "gone")
    assert isinstance(taken, CurationRun)
    return taken


def lose(run: CurationRun) -> None:
    error = RunError("WorkerLost", "gone", "", 1, "stale")
    transitions.reap(table_of(CurationRun), run.pk, run.lease, error)


def test_late_pass_changes_nothing() -> None:
    harvest("a", "b")
    request_curation()
    late = claimed()
    lose(late)

    @transaction.atomic
    def perform_and_settle() -> None:
        late.perform(context(late, late.lease))
        assert edges()
        transitions.succeed(late, {})

    with pytest.raises(LeaseLost):
        perform_and_settle()
    assert not edges()


def test_passes_that_kill_their_workers_come_to_an_end() -> None:
    request_curation()
    for number in range(1, passes.LOST_IN_A_ROW + 1):
        assert CurationRun.objects.count() == number
        lose(claimed())
    assert set(CurationRun.objects.values_list("state", flat=True)) == {"failed"}
    assert CurationRun.objects.count() == passes.LOST_IN_A_ROW


def test_lost_pass_that_was_asked_to_rerun_is_followed_by_one_run() -> None:
    request_curation()
    run = claimed()
    assert request_curation().rerun
    lose(run)
    run.refresh_from_db()
    next_run = CurationRun.objects.get(state="queued")
    assert run.last_error
    assert run.last_error["rerun"] == f"left to {next_run.job_id}, which has the lock already"


def test_cancelled_pass_is_not_followed() -> None:
    run = request_curation().run
    assert run.cancel() == "cancelled"
    assert not CurationRun.objects.filter(state="queued").exists()


def test_source_that_is_listed_no_more_asks_for_a_pass(origin: Origin) -> None:
    reconcile()
    assert not CurationRun.objects.exists()
    origin.catalogue.pop("a")
    reconcile()
    assert CurationRun.objects.get().lock_key == LOCK
    reconcile()
    assert not CurationRun.objects.get().rerun_requested


def test_schedule_takes_the_same_lock() -> None:
    assert [each.lock_key for each in schedules() if each.model is CurationRun] == [LOCK]
