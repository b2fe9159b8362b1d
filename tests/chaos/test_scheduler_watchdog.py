"""The watchdog on real silence: a killed worker, a Postgres that crashed, one pass of `--once`."""

import time
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from runcontract.lifecycle.watch import deaf_for_a_while
from tests.lab.models import MailRun
from tests.support.lab import effects, ended, executed_once, in_state
from tests.support.servers import crash_postgres
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])


def stale(number: int, **values):
    old = Now() - timedelta(hours=1)
    fields = {"state": "running", "lease": 1, "worker": "w", "heartbeat_at": old} | values
    return MailRun.objects.bulk_create([MailRun(job_id=f"s{number}", **fields)])[0]


def test_run_of_a_killed_worker_is_reaped_and_a_crash_of_postgres_reaps_nobody(
    redis_server, postgres, start_worker, start_scheduler
) -> None:
    quick = {"STALE_AFTER": 4, "HEARTBEAT": 1, "FENCE_MARGIN": 0.5}
    scheduler = start_scheduler(settings=quick)
    killed = start_worker("default", settings=quick)
    lost = MailRun.objects.enqueue(job_id="lost", lock_key="L", task="nap", args={"n": 60}).run
    in_state(lost, "running")
    eventually(lambda: effects(lost))
    killed.kill()
    assert ended(lost, 25).failure == "stale"
    assert MailRun.objects.enqueue(job_id="next", lock_key="L", lane="bulk").created

    worker = start_worker("default", settings=quick)
    run = MailRun.objects.enqueue(job_id="alive", task="nap", args={"n": 6}).run
    in_state(run, "running")
    crash_postgres(postgres)
    postgres.start()
    assert ended(run, 25).state == "succeeded", run.last_error
    assert executed_once(run)
    assert "Database default is away" in scheduler.log or "tried again" in scheduler.log
    scheduler.stop()
    worker.stop()


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
