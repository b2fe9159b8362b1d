"""Timeouts, cancels and pauses, on real processes (§6, §7)."""

import signal
from datetime import timedelta

import pytest
from django.db import connections
from django.utils import timezone

from tests.lab.models import AsyncRun, MailRun, PassRun
from tests.support.lab import at_work, canary, effects, ended, executed_once, in_state
from tests.support.processes import is_alive
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])


def run_task(task: str, *, model: type = MailRun, **args: object) -> MailRun:
    return model.objects.enqueue(job_id=f"{task} {args}", task=task, args=args).run


def test_timeout_is_raised_in_the_job_and_what_swallows_it_is_killed(
    redis_server, start_worker, start_scheduler
) -> None:
    once = run_task("nap_once", n=60)
    always = run_task("nap", n=60)
    in_c = run_task("hold_gil", n=60)
    coroutine = run_task("nap", model=AsyncRun, n=60)
    settings = {"TIMEOUT": 1.5, "MAX_ATTEMPTS": 2, "BACKOFF_FLOOR": 0.1, "BACKOFF_CAP": 0.2}
    worker = start_worker("default", "--processes", "4", settings=settings)
    scheduler = start_scheduler(settings=settings)
    assert (ended(once).state, once.attempts) == ("succeeded", 2)
    for run in (always, coroutine, in_c):
        assert (ended(run, 40).failure, run.attempts) == ("timeout", 2)
        assert len(effects(run)) == 2
        assert not run.stats.get("lost")
    assert "RunTimedOut" in str(always.last_error)
    assert "Killed at its timeout" in str(in_c.last_error)
    canary(worker)
    worker.stop()
    scheduler.stop()


def test_cancel_of_running_runs_ends_them_the_stubborn_ones_too(redis_server, start_worker) -> None:
    plain = run_task("nap", n=60)
    asking = run_task("patient", n=60)
    in_sql = run_task("sql", statement="SELECT pg_sleep(60)")
    tidy = run_task("tidy", model=AsyncRun, n=60)
    stubborn = run_task("stubborn", n=60)
    stubborn_coroutine = run_task("stubborn", model=AsyncRun, n=60)
    runs = [plain, asking, in_sql, tidy, stubborn, stubborn_coroutine]
    worker = start_worker("default", "--processes", "6")
    for run in runs:
        at_work(run)
    for run in runs:
        assert run.cancel() == "asked"
    for run in runs:
        assert (ended(run, 45).state, run.failure, run.attempts) == ("failed", "cancelled", 1)
    assert tidy.note == "cancelled"
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)'")
        assert cursor.fetchone() == (0,)
    canary(worker)
    worker.stop()


def test_short_pause_keeps_the_run_and_its_pulse_and_a_long_one_frees_the_worker(
    redis_server, start_worker
) -> None:
    short = run_task("fail_on", attempts=[1, 2])
    worker = start_worker(
        "default", settings={"SHORT_PAUSE": 5, "BACKOFF_FLOOR": 1.2, "BACKOFF_BASE": 1.2}
    )
    in_state(short, "running")
    beats = set()

    def over() -> bool:
        short.refresh_from_db()
        beats.add(short.heartbeat_at)
        return short.state == "succeeded"

    eventually(over)
    assert (short.attempts, short.lease, short.stats.get("deferred")) == (3, 1, None)
    assert len({line.pid for line in effects(short)}) == 1
    assert len(beats) > 3
    long = run_task("transient", retry_after=3600)
    in_state(long, "queued")
    eventually(lambda: MailRun.objects.get(pk=long.pk).next_retry_at)
    canary(worker)
    long.refresh_from_db()
    assert (long.state, long.attempts, long.stats["deferred"]) == ("queued", 1, 1)
    assert long.next_retry_at > timezone.now() + timedelta(minutes=50)
    worker.stop()


def test_drain_during_a_short_pause_defers_and_keeps_the_attempt(
    redis_server, start_worker
) -> None:
    run = run_task("fail_on", attempts=[1])
    plain = run_task("fail_on", model=PassRun, attempts=[1])
    asked = run_task("fail_on", model=PassRun, attempts=[1], n=0)
    settings = {"SHORT_PAUSE": 60, "BACKOFF_FLOOR": 40, "BACKOFF_CAP": 50}
    worker = start_worker("default", "--processes", "3", settings=settings)
    for one in (run, plain, asked):
        eventually(lambda o=one: effects(o) and effects(o)[0].end)
    eventually(lambda: worker.log.count("attempt 1 failed") == 3)
    PassRun.objects.filter(pk=asked.pk).update(cancel_requested=True)
    worker.stop(timeout=8)
    assert (in_state(run, "queued").attempts, run.stats["deferred"]) == (1, 1)
    left = run.next_retry_at - timezone.now()
    assert timedelta(seconds=25) < left < timedelta(seconds=50)
    assert "busy" in str(run.last_error)
    assert in_state(plain, "queued").stats["given_back"] == 1
    assert in_state(asked, "failed").failure == "cancelled"


def test_coroutine_works_on_one_connection_and_is_stopped_by_a_drain(
    redis_server, start_worker
) -> None:
    """Four of them: two signals at once may miss the main thread of a process with threads."""
    seen = run_task("backends", model=AsyncRun)
    napping = [run_task("tidy", model=AsyncRun, n=60 + number) for number in range(4)]
    worker = start_worker("default", "--processes", "4", settings={"DRAIN_TIMEOUT": 0.5})
    assert ended(seen).state == "succeeded", seen.last_error
    assert executed_once(seen)
    assert seen.note == "2 True"
    for run in napping:
        at_work(run)
    worker.send(signal.SIGTERM)
    assert worker.wait(10) == 0
    assert "would not stop" not in worker.log
    for run in napping:
        assert (in_state(run, "queued").attempts, run.note) == (0, "cancelled")


def test_run_that_was_deleted_or_taken_away_while_it_ran_is_stopped(
    redis_server, start_worker
) -> None:
    deleted, taken = run_task("nap", n=60), run_task("stubborn", n=60)
    worker = start_worker("default", "--processes", "2")
    at_work(deleted)
    at_work(taken)
    children = worker.children()
    MailRun.objects.filter(pk=deleted.pk).delete()
    MailRun.objects.filter(pk=taken.pk).update(lease=7)
    eventually(lambda: not any(map(is_alive, children)))
    assert worker.log.count("not ours any more") == 2
    taken.refresh_from_db()
    assert (taken.state, taken.lease, taken.last_error) == ("running", 7, None)
    canary(worker)
    worker.stop()
