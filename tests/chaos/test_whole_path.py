"""From enqueue to the end, by a real worker and a real scheduler, for every kind of run model."""

import pytest
from django.db import transaction

from tests.lab import models
from tests.support.lab import effects, ended, executed_once
from tests.support.wait import eventually

ALL = [
    models.MailRun,
    models.SyncRun,
    models.PassRun,
    models.AtomicRun,
    models.AgainRun,
    models.UuidRun,
    models.OtherRun,
    models.AsyncRun,
]

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])


def test_run_of_every_model_is_executed_once(redis_server, start_worker) -> None:
    runs = [model.objects.enqueue(job_id="one").run for model in ALL]
    worker = start_worker("default", "--processes", "2")
    for run in runs:
        assert ended(run).state == "succeeded", run.last_error
        assert executed_once(run)
    worker.stop()


def test_failure_of_every_model_is_kept(redis_server, start_worker) -> None:
    runs = [
        model.objects.enqueue(job_id="bad", task="fail", args={"kind": "permanent"}).run
        for model in ALL
    ]
    worker = start_worker("default")
    for run in runs:
        assert (ended(run).state, run.failure) == ("failed", "permanent")
        assert "no" in str(run.last_error)
    worker.stop()


def test_transient_failure_is_tried_again_until_it_succeeds(redis_server, start_worker) -> None:
    args = {"attempts": [1, 2]}
    run = models.MailRun.objects.enqueue(job_id="flaky", task="fail_on", args=args).run
    worker = start_worker("default", settings={"BACKOFF_BASE": 0.1})
    assert ended(run).state == "succeeded", run.last_error
    assert [line.attempt for line in effects(run)] == [1, 2, 3]
    worker.stop()


def test_message_lost_with_all_of_redis_is_sent_again(
    redis_server, start_worker, start_scheduler
) -> None:
    with transaction.atomic():
        run = models.MailRun.objects.enqueue(job_id="lost").run
    redis_server.flushall()
    worker, scheduler = start_worker("default"), start_scheduler()
    assert ended(run).state == "succeeded"
    assert executed_once(run)
    worker.stop()
    scheduler.stop()


def test_schedule_of_an_app_fires(redis_server, start_scheduler) -> None:
    entry = {"name": "often", "model": "MailRun", "cron": "* * * * * *", "lane": "bulk"}
    scheduler = start_scheduler(schedules=[entry])
    eventually(lambda: models.MailRun.objects.filter(lane="bulk").count() >= 2)
    scheduler.stop()
