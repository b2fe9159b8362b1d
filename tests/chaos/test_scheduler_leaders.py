"""Several schedulers, and what ends one: each second of a schedule is fired once, always."""

import signal
import time
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connection
from django.db.models import QuerySet

from runcontract.models import SchedulerLease, Tick
from tests.lab.models import MailRun
from tests.support.processes import Command
from tests.support.servers import cut_sessions
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])

EVERY_SECOND = {"name": "second", "model": "MailRun", "cron": "* * * * * *", "catch_up": "all"}
LEASE = 2.0


def seconds() -> QuerySet[Tick]:
    """The fire times so far; the first is only the sight of the schedule."""
    return Tick.objects.filter(schedule="second").order_by("fire_at")


def leader(among: list[Command]) -> Command | None:
    """Who holds the lease just now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT holder FROM runcontract_schedulerlease WHERE expires_at > clock_timestamp()"
        )
        row = cursor.fetchone()
    if row is None:
        return None
    return next((one for one in among if f"-{one.pid}-" in row[0]), None)


def another(among: list[Command], old: Command, timeout: float) -> tuple[Command, float]:
    """The next leader, and after how many seconds it leads."""
    begun = time.monotonic()
    rest = [one for one in among if one is not old]
    return eventually(lambda: leader(rest), timeout), time.monotonic() - begun


def test_each_second_fires_once_whatever_becomes_of_the_leader(redis_server, start) -> None:
    schedulers = [start("runscheduler", schedules=[EVERY_SECOND]) for _ in range(3)]
    for one in schedulers:
        one.wait_until_ready()
    first = eventually(lambda: leader(schedulers))
    eventually(lambda: seconds().count() > 2)

    first.kill()
    second, took = another(schedulers, first, 10)
    assert took < LEASE + 2
    schedulers.remove(first)

    second.send(signal.SIGSTOP)
    third, took = another(schedulers, second, 10)
    assert took < LEASE + 2
    second.send(signal.SIGCONT)
    second.wait_for("The lease is lost; standing by")
    assert leader(schedulers) is third

    for _ in range(3):
        cut_sessions()
        count = seconds().count()
        eventually(lambda: seconds().count() > count + 1, 10)

    now_leading = eventually(lambda: leader(schedulers))
    last = next(one for one in schedulers if one is not now_leading)
    term = SchedulerLease.objects.get().term
    now_leading.stop()
    assert eventually(lambda: leader([last]), 5)
    assert SchedulerLease.objects.get().term == term + 1
    last.wait_for(f"Leading, term {term + 1}")
    count = seconds().count()
    eventually(lambda: seconds().count() > count)
    last.stop()

    times = list(seconds().values_list("fire_at", flat=True))[1:]
    assert {b - a for a, b in pairwise(times)} == {timedelta(seconds=1)}
    assert sorted(MailRun.objects.values_list("job_id", flat=True)) == [
        f"second:{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in times
    ]


def test_only_scheduler_goes_on_after_a_long_sleep(redis_server, start_scheduler) -> None:
    scheduler = start_scheduler(schedules=[EVERY_SECOND | {"catch_up": "once"}])
    eventually(lambda: seconds().count() > 1)
    scheduler.send(signal.SIGSTOP)
    begun = seconds().count()
    time.sleep(6)  # what nobody could see happen: more than its lease and than a pause
    scheduler.send(signal.SIGCONT)
    eventually(lambda: seconds().count() > begun + 2)
    assert seconds().count() < begun + 6  # one for all that it missed
    assert "This scheduler was paused" in scheduler.log
    scheduler.stop()


@pytest.mark.parametrize("zones", [("0", "Europe/Moscow"), ("1", "Asia/Kolkata")])
def test_times_are_right_in_naive_projects_and_mixed_zones(
    redis_server, start_scheduler, zones
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        name = cursor.fetchone()[0]
        cursor.execute(f"ALTER DATABASE {name} SET timezone TO 'America/Denver'")
    try:
        env = {
            "RUNCONTRACT_TEST_USE_TZ": zones[0],
            "RUNCONTRACT_TEST_TIME_ZONE": zones[1],
            "TZ": "Asia/Tokyo",
        }
        daily = EVERY_SECOND | {"name": "daily", "cron": "0 9 * * *", "timezone": "Asia/Tokyo"}
        with connection.cursor() as cursor:
            cursor.execute(SCENE)
        scheduler = start_scheduler(schedules=[EVERY_SECOND, daily], env=env)
        eventually(lambda: seconds().count() > 4)
        eventually(lambda: MailRun.objects.get(job_id="stale").failure == "stale", 15)
        assert MailRun.objects.get(job_id="later").dispatched_at is None
        assert MailRun.objects.get(job_id="due").dispatched_at is not None
        assert MailRun.objects.get(job_id="over").released_at is not None
        assert MailRun.objects.get(job_id="held").released_at is None
        scheduler.stop()
        times = list(seconds().values_list("fire_at", flat=True))
        assert {b - a for a, b in pairwise(times[1:])} == {timedelta(seconds=1)}
        assert list(Tick.objects.filter(schedule="daily").values_list("detail", flat=True)) == [
            "first seen"
        ]
        assert "tried again" not in scheduler.log
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER DATABASE {name} RESET timezone")


COLUMNS = """
    job_id, lane, state, failure, lease, worker, fingerprint, stats, rerun_requested,
    cancel_requested, attempts, task, args, hook, progress, note, heartbeat_at, next_retry_at,
    finished_at, held_until
"""
SCENE = f"""
INSERT INTO lab_mailrun ({COLUMNS})
SELECT id, 'default', state, '', lease, worker, '', '{{}}', false, false, 0, 'succeed', '{{}}', '',
    0, '', now() - beat, now() + due, now() + ended, now() + held
FROM (VALUES
    ('stale', 'running', 1, 'w', interval '1 minute', NULL, NULL, NULL),
    ('later', 'queued', 0, '', NULL, interval '30 minutes', NULL, NULL),
    ('due', 'queued', 0, '', NULL, interval '-1 s', NULL, NULL),
    ('over', 'succeeded', 1, 'w', NULL, NULL, interval '-1 h', interval '-1 s'),
    ('held', 'succeeded', 1, 'w', NULL, NULL, interval '-1 h', interval '30 minutes')
) AS rows (id, state, lease, worker, beat, due, ended, held)
"""
