"""Postgres cuts sessions, crashes, freezes or is not there yet (H05)."""

import os
import signal
import time

import pytest
from django.db import connections

from tests.lab.models import MailRun
from tests.support.lab import at_work, canary, effects, ended, executed_once
from tests.support.processes import descendants_of
from tests.support.servers import close_connections, crash_postgres, cut_sessions, waiting_for_locks
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])


@pytest.mark.parametrize(("age", "cuts"), [("0", 1), ("null", 5)])
def test_cut_sessions_cost_neither_the_result_nor_the_pulse(
    redis_server, start_worker, start_scheduler, tmp_path, age, cuts
) -> None:
    env = {"RUNCONTRACT_TEST_CONN_MAX_AGE": age}
    go = tmp_path / "go"
    args = {"path": str(go)}
    run = MailRun.objects.enqueue(job_id="cut", task="wait_for_file", args=args).run
    worker, scheduler = start_worker("default", env=env), start_scheduler(env=env)
    at_work(run)
    for _ in range(cuts):
        before = MailRun.objects.get(pk=run.pk).heartbeat_at
        eventually(lambda: cut_sessions() >= 1)
        eventually(lambda seen=before: MailRun.objects.get(pk=run.pk).heartbeat_at > seen)
    go.touch()
    assert ended(run).state == "succeeded", run.last_error
    assert executed_once(run)
    cut_sessions()
    canary(worker)
    worker.stop()
    scheduler.stop()


def test_result_of_a_job_that_ended_without_a_database_is_written_when_it_is_back(
    redis_server, postgres, start_worker, start_scheduler, tmp_path
) -> None:
    go = tmp_path / "go"
    args = {"path": str(go)}
    run = MailRun.objects.enqueue(job_id="crash", task="wait_for_file", args=args).run
    settings = {"STALE_AFTER": 20}
    worker = start_worker("default", "--processes", "2", settings=settings)
    scheduler = start_scheduler(settings=settings)
    at_work(run)
    children = worker.children()
    crash_postgres(postgres)
    go.touch()
    worker.wait_for("could not be settled yet")
    worker.wait_for("pulse of .* does not get through")
    postgres.start()
    assert ended(run).state == "succeeded", run.last_error
    assert len(effects(run)) == 1
    assert worker.children() == children
    canary(worker)
    scheduler.stop()
    worker.stop()


def test_worker_that_is_stopped_without_a_database_ends_in_time(
    redis_server, postgres, start_worker, start_scheduler, tmp_path
) -> None:
    """One job has ended and cannot settle; one still runs and cannot be given back."""
    go = tmp_path / "go"
    args = {"path": str(go)}
    short = MailRun.objects.enqueue(job_id="short", task="wait_for_file", args=args).run
    long = MailRun.objects.enqueue(job_id="long", task="nap", args={"n": 60}).run
    settings = {"STALE_AFTER": 60}
    worker = start_worker("default", "--processes", "2", settings=settings)
    at_work(long)
    at_work(short)
    crash_postgres(postgres)
    go.touch()
    worker.wait_for("could not be settled yet")
    begun = time.monotonic()
    worker.send(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert time.monotonic() - begun < 3 + 10
    postgres.start()
    scheduler = start_scheduler()
    for run in (short, long):
        assert ended(run).failure == "stale"
        assert len(effects(run)) == 1
    scheduler.stop()


def test_job_is_stopped_before_its_run_is_stale_when_the_database_is_frozen(
    redis_server, postgres, start_worker, tmp_path
) -> None:
    trace = tmp_path / "trace"
    args = {"path": str(trace)}
    run = MailRun.objects.enqueue(job_id="fenced", task="leave_a_trace", args=args).run
    worker = start_worker("default", settings={"STALE_AFTER": 8, "FENCE_MARGIN": 4})
    at_work(run)
    assert postgres.process is not None
    close_connections()
    frozen = _stop(postgres.process.pid)
    begun = time.time()
    try:
        worker.wait_for("its job is stopped", 12)
        eventually(lambda: time.time() - float(trace.read_text()) > 1, 12)
        assert float(trace.read_text()) - begun < 8
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    assert (ended(run).failure, run.attempts) == ("stale", 1)
    assert "lost the database" in str(run.last_error)
    canary(worker)
    worker.stop()


def _stop(pid: int) -> list[int]:
    """Freeze a process and all it has started, and what it starts meanwhile."""
    frozen: list[int] = []
    while new := [one for one in (pid, *descendants_of(pid)) if one not in frozen]:
        for one in new:
            os.kill(one, signal.SIGSTOP)
        frozen += new
    return frozen


def test_worker_may_be_started_before_the_database_and_before_redis(
    redis_server, valkey, postgres, start
) -> None:
    run = MailRun.objects.enqueue(job_id="early").run
    connections.close_all()
    postgres.stop()
    valkey.stop()
    worker = start("runworker", "default").wait_until_ready()
    worker.wait_for("database is away")
    postgres.start()
    assert ended(run).state == "succeeded"
    valkey.start()
    worker.wait_for("Redis answers again", 30)
    canary(worker)
    worker.stop()


def test_statement_of_a_killed_job_does_not_outlive_it(redis_server, start_worker) -> None:
    """It waits for a lock in the server; when the lock is free, it must not write any more."""
    statement = "INSERT INTO lab_order (name, amount) VALUES ('late', 0)"
    run = MailRun.objects.enqueue(job_id="orphan", task="sql", args={"statement": statement}).run
    with connections["default"].cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("LOCK TABLE lab_order")
        worker = start_worker("default")
        at_work(run)
        eventually(lambda: waiting_for_locks() == 1)
        os.kill(worker.children()[0], signal.SIGKILL)
        ended(run)
        eventually(lambda: waiting_for_locks() == 0)
        cursor.execute("COMMIT")
        cursor.execute("SELECT count(*) FROM lab_order")
        assert cursor.fetchone() == (0,)
    worker.stop()
