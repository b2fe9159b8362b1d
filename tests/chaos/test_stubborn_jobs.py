"""Jobs that do not want to stop (H26), hold the GIL (H10), or leave a mess behind (H12)."""

import os
import signal
import time

import pytest
from django.db import transaction

from tests.lab.models import MailRun, Order
from tests.support.lab import at_work, canary, effects, ended, executed_once, in_state
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])

NOT_EXCEPTIONS = [
    "exit",
    "exit_0",
    "exit_text",
    "interrupt",
    "generator_exit",
    "cancelled",
    "evil",
    "memory",
    "stop_iteration",
    "recursion",
]


def run_task(task: str, **args: object) -> MailRun:
    return MailRun.objects.enqueue(job_id=f"{task} {args}", task=task, args=args).run


def test_stop_ends_every_stubborn_job_and_none_is_failed_for_it(redis_server, start_worker) -> None:
    insert = "INSERT INTO lab_order (name, amount) VALUES ('late', 0)"
    stubborn = [
        run_task("stubborn"),
        run_task("deaf"),
        run_task("masked"),
        run_task("deaf_to_all"),
        run_task("turncoat"),
        run_task("handler_raises"),
        run_task("listen_for_ever"),
        run_task("hold_gil", n=60),
        run_task("sql", statement=insert),
    ]
    settings = {"DRAIN_TIMEOUT": 1, "SHORT_PAUSE": 0, "BACKOFF_FLOOR": 60}
    with transaction.atomic():
        with transaction.get_connection().cursor() as cursor:
            cursor.execute("LOCK TABLE lab_order")
        worker = start_worker("default", "--processes", str(len(stubborn)), settings=settings)
        for run in stubborn:
            at_work(run)
        begun = time.monotonic()
        worker.send(signal.SIGTERM)
        assert worker.wait(20) == 0
        assert time.monotonic() - begun < 1 + 10
    for run in stubborn:
        run.refresh_from_db()
        assert (run.state, len(effects(run))) == ("queued", 1), (run.job_id, run.last_error)
        if run.task != "handler_raises":  # its own handler made the stop an ordinary error
            assert run.attempts == 0
            assert f"lab.mailrun {run.pk} 1: has not ended in time" in worker.log
    assert not Order.objects.exists()


def test_stop_is_not_held_up_by_what_jobs_have_left_running(redis_server, start_worker) -> None:
    worker = start_worker("default")
    for run in (run_task("non_daemon_thread"), run_task("slow_at_exit")):
        assert ended(run).state == "succeeded"
    begun = time.monotonic()
    worker.stop()
    assert time.monotonic() - begun < 5


def test_worker_that_was_not_heard_by_its_job_takes_nothing_more(
    redis_server, start_worker
) -> None:
    """The job ignores SIGTERM, ends in time, and the next run must not begin."""
    run, next_one = run_task("deaf", n=5), run_task("succeed")
    worker = start_worker("default", settings={"DRAIN_TIMEOUT": 30})
    at_work(run)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert in_state(run, "succeeded")
    assert in_state(next_one, "queued").lease == 0


def test_nothing_that_a_job_leaves_behind_reaches_its_settle_or_the_next_run(
    redis_server, start_worker
) -> None:
    worker = start_worker("default", settings={"DRAIN_TIMEOUT": 10})
    (child,) = worker.children()
    for task in (
        "own_handlers",
        "own_alarm",
        "leave_begin",
        "leave_autocommit_off",
        "leave_atomic",
        "leave_read_only",
        "late_thread",
        "bad_finalizer",
        "fork_comes_back",
    ):
        run = run_task(task)
        assert ended(run).state == "succeeded", (task, run.last_error)
        canary(worker)
        assert {line.pid for line in effects(run)} >= {child}
    terminated = run_task("terminate_own")
    assert ended(terminated).note == str(-signal.SIGTERM)
    assert not Order.objects.exists()
    assert worker.children() == [child]
    last = run_task("nap", n=3)
    at_work(last)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0, worker.log
    assert in_state(last, "succeeded")


def test_whatever_a_job_raises_its_worker_lives_on(redis_server, start_worker) -> None:
    worker = start_worker("default", settings={"MAX_ATTEMPTS": 1, "DRAIN_TIMEOUT": 10})
    (child,) = worker.children()
    for kind in NOT_EXCEPTIONS:
        run = run_task("fail", kind=kind)
        assert ended(run).state == "failed", kind
        assert run.last_error["type"], kind
        canary(worker)
    assert {line.pid for line in effects(MailRun(job_id="fail {'kind': 'evil'}"))} == {child}
    assert worker.children() == [child]
    leaving = run_task("fail", kind="exit_0", n=4)
    at_work(leaving)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert in_state(leaving, "failed")
    aborted = start_worker("default")
    run = run_task("abort")
    assert ended(run).failure == "stale"
    assert f"signal {int(signal.SIGABRT)}" in str(run.last_error)
    canary(aborted)
    aborted.stop()


def test_job_that_never_lets_go_of_the_gil_keeps_its_pulse_and_can_be_stopped(
    redis_server, start_worker, start_scheduler
) -> None:
    scheduler = start_scheduler()
    run = run_task("hold_gil", n=7)
    worker = start_worker("default")
    at_work(run)
    beats = set()

    def over() -> bool:
        run.refresh_from_db()
        beats.add(run.heartbeat_at)
        return run.state == "succeeded"

    eventually(over, 20)
    assert len(beats) > 5
    assert executed_once(run)
    held = run_task("hold_gil", n=60)
    at_work(held)
    worker.send(signal.SIGTERM)
    assert worker.wait(13) == 0
    assert in_state(held, "queued").attempts == 0
    scheduler.stop()


def test_six_deploys_spend_no_attempt_and_three_kills_are_the_end(
    redis_server, start_worker
) -> None:
    settings = {"DRAIN_TIMEOUT": 0, "ON_LOST": "retry", "BACKOFF_FLOOR": 0.01, "BACKOFF_BASE": 0.01}
    run = MailRun.objects.enqueue(job_id="deploys", lock_key="k", task="nap", args={"n": 60}).run
    for number in range(1, 7):
        worker = start_worker("default", settings=settings)
        at_work(run)
        worker.stop(timeout=10)
        assert (in_state(run, "queued").attempts, run.stats["given_back"]) == (0, number)
    MailRun.objects.filter(pk=run.pk).update(args={"n": 0.1})
    worker = start_worker("default", settings=settings)
    assert (ended(run).state, run.attempts) == ("succeeded", 1)
    killed = MailRun.objects.enqueue(job_id="kills", task="nap", args={"n": 60}).run
    for number in range(1, 4):
        at_work(killed)
        os.kill(worker.children()[0], signal.SIGKILL)
        eventually(lambda n=number: MailRun.objects.get(pk=killed.pk).stats.get("lost") == n)
        redis_server.rpush("rq:queue:default", f"lab-mailrun-{killed.pk}-{2 * number}")
    assert (ended(killed).failure, killed.attempts) == ("stale", 3)
    worker.stop()
