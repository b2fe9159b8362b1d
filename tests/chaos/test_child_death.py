"""A job's process dies: kill -9, a crash, an exit. Its supervisor sees it at once."""

import itertools
import os
import signal
from datetime import timedelta

import pytest
from django.db import transaction

from tests.lab.models import AgainRun, MailRun
from tests.support.lab import at_work, canary, effects, ended, executed_once
from tests.support.processes import is_alive
from tests.support.servers import waiting_for_locks
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])

LOST = "worker died (signal 9)"


def test_run_of_a_killed_child_is_settled_at_once_with_all_that_it_had_started(
    redis_server, start_worker
) -> None:
    run = MailRun.objects.enqueue(job_id="victim", lock_key="lock", task="parent_of").run
    worker = start_worker("default", settings={"STALE_AFTER": 60, "HEARTBEAT": 10})
    at_work(run)
    grandchild = int(eventually(lambda: MailRun.objects.get(pk=run.pk).note))
    (child,) = worker.children()
    os.kill(child, signal.SIGKILL)
    ended(run, 5)
    assert (run.state, run.failure, run.attempts) == ("failed", "stale", 1)
    assert LOST in str(run.last_error)
    assert run.stats["lost"] == 1
    assert len(effects(run)) == 1
    eventually(lambda: not is_alive(grandchild), 5)
    assert MailRun.objects.enqueue(job_id="next", lock_key="lock")
    canary(worker)
    worker.stop()


def test_run_that_may_be_run_again_succeeds_after_its_child_was_killed(
    redis_server, start_worker, start_scheduler
) -> None:
    args = {"attempts": [1]}
    run = AgainRun.objects.enqueue(job_id="again", task="suicide", args=args).run
    plain = MailRun.objects.enqueue(job_id="fails", task="fail", hook="lethal").run
    worker, scheduler = start_worker("default"), start_scheduler()
    assert ended(run).state == "succeeded", run.last_error
    assert (run.attempts, run.stats["lost"]) == (2, 1)
    assert [line.attempt for line in effects(run)] == [1, 2]
    # on_failed kills everybody who settles: that ends too, and nobody waits for it.
    eventually(lambda: worker.log.count("ended before any work") >= 1)
    canary(worker)
    MailRun.objects.filter(pk=plain.pk).update(hook="")
    assert ended(plain).failure == "stale"
    worker.stop()
    scheduler.stop()


def test_job_that_kills_its_worker_each_time_is_given_up_after_three_and_hurts_nobody(
    redis_server, start_worker, start_scheduler
) -> None:
    poison = [
        AgainRun.objects.enqueue(job_id=task, lock_key=task, task=task, lane=lane).run
        for task, lane in (("suicide", "default"), ("segfault", "bulk"), ("exit_code", "default"))
    ]
    normal = [
        MailRun.objects.enqueue(job_id=str(number), lane=lane).run
        for number in range(25)
        for lane in ("default", "bulk")
        if not MailRun.objects.filter(job_id=str(number)).exists()
    ]
    settings = {"BACKOFF_FLOOR": 0.3, "BACKOFF_BASE": 0.3, "BACKOFF_CAP": 0.5}
    worker = start_worker("default", "bulk", settings=settings)
    scheduler = start_scheduler(settings=settings)
    for run in poison:
        assert (ended(run).state, run.failure) == ("failed", "stale")
        assert "worker died" in str(run.last_error)
        assert (run.attempts, run.next_retry_at, run.stats["lost"]) == (3, None, 3)
        starts = [line.start for line in effects(run)]
        assert len(starts) == 3
        pauses = [after - before for before, after in itertools.pairwise(starts)]
        assert min(pauses) >= timedelta(seconds=0.3)
        assert AgainRun.objects.enqueue(job_id=f"{run.job_id} 2", lock_key=run.lock_key).created
    for run in normal:
        assert ended(run).state == "succeeded"
        assert executed_once(run)
    canary(worker)
    worker.stop()
    scheduler.stop()


def test_child_that_dies_while_its_claim_waits_in_the_server_loses_nothing(
    redis_server, start_worker, start_scheduler
) -> None:
    run = MailRun.objects.enqueue(job_id="locked", task="nap", args={"n": 0.1}).run
    with transaction.atomic():
        MailRun.objects.select_for_update().get(pk=run.pk)
        worker = start_worker("default")
        (child,) = worker.children()
        eventually(lambda: redis_server.llen("rq:queue:default") == 0)
        eventually(lambda: waiting_for_locks() == 1)
        os.kill(child, signal.SIGKILL)
        eventually(lambda: not is_alive(child))
        eventually(lambda: worker.children())
    scheduler = start_scheduler()
    assert ended(run).state == "succeeded", run.last_error
    assert executed_once(run)
    assert run.attempts == 1
    worker.stop()
    scheduler.stop()


def test_children_die_with_their_killed_supervisor_and_the_watchdog_settles(
    redis_server, start_worker, start_scheduler
) -> None:
    """Twice, each with a worker that is reborn at once (H07)."""
    scheduler = start_scheduler()
    runs, worker = [], None
    for number in range(2):
        task = "nap" if number else "deaf_to_all"
        runs.append(MailRun.objects.enqueue(job_id=str(number), task=task, args={"n": 60}).run)
        worker = start_worker("default")
        at_work(runs[-1])
        children = worker.children()
        worker.kill()
        eventually(lambda pids=children: not any(map(is_alive, pids)), 5)
    reborn = start_worker("default")
    for run in runs:
        assert (ended(run).failure, run.attempts) == ("stale", 1)
        assert "was lost" in str(run.last_error)
        assert len(effects(run)) == 1
    canary(reborn)
    reborn.stop()
    scheduler.stop()
