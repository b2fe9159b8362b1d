"""The watchdog on real silence: a killed worker, a Postgres that crashed, one pass of `--once`."""

import time
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now

from runcontract.lifecycle.watch import deaf_for_a_while
from tests.lab.models import MailRun
from tests.support.lab import effects, ended
from tests.support.servers import crash_postgres
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])


def stale(number: int, **values):
    old = Now() - timedelta(hours=1)
    fields = {"state": "running", "lease": 1, "worker": "w", "heartbeat_at": old} | values
    return MailRun.objects.bulk_create([MailRun(job_id=f"s{number}", **fields)])[0]


def test_run_of_a_killed_worker_is_reaped_and_its_lock_is_free(
    redis_server, start_worker, start_scheduler
) -> None:
    scheduler, worker = start_scheduler(), start_worker("default")
    lost = MailRun.objects.enqueue(job_id="lost", lock_key="L", task="nap", args={"n": 60}).run
    eventually(lambda: effects(lost))
    worker.kill()
    assert ended(lost, 25).failure == "stale"
    assert MailRun.objects.enqueue(job_id="next", lock_key="L", lane="bulk").created
    scheduler.stop()


def test_nobody_is_reaped_for_two_heartbeats_after_a_crash_of_postgres(
    redis_server, postgres, start_scheduler
) -> None:
    scheduler = start_scheduler(settings={"HEARTBEAT": 2, "STALE_AFTER": 8, "FENCE_MARGIN": 1})
    crash_postgres(postgres)
    postgres.start()
    run = stale(1)
    assert ended(run, 30).failure == "stale"
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_postmaster_start_time()")
        started = cursor.fetchone()[0]
    assert run.finished_at - started > timedelta(seconds=4)
    assert scheduler.alive
    scheduler.stop()


def test_once_does_everything_in_one_call(redis_server, start) -> None:
    settings = {"HEARTBEAT": 0.3}
    eventually(lambda: not deaf_for_a_while("default", timedelta(seconds=0.6)))
    runs = [stale(number, hook="broken") for number in range(3)]
    MailRun.objects.bulk_create([MailRun(job_id="unsent")])
    begun = time.monotonic()
    once = start("runscheduler", "--once", settings=settings)
    assert once.wait() == 0, once.log
    assert time.monotonic() - begun < 25
    for run in runs:
        run.refresh_from_db()
        assert run.failure == "stale"
    assert redis_server.llen("rq:queue:default") == 1
