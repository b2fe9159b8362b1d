"""Fire times: once each, with their outcome, and what is done about those that were missed."""

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

import pytest
from django.db import connection, connections, transaction
from django.db.utils import OperationalError

from runcontract.models import Tick
from runcontract.scheduler import cron
from runcontract.scheduler.cron import prune_ticks, tick
from runcontract.scheduler.schedules import Schedule
from tests.lab.models import MailRun, OtherRun, PassRun
from tests.support.race import race, values
from tests.support.wait import eventually

from .conftest import daily_at, minutes, outcomes

pytestmark = [
    pytest.mark.django_db(databases=["default", "jobs"]),
    pytest.mark.usefixtures("redis_server"),
]

EVERY_MINUTE = "* * * * *"


def test_first_start_runs_nothing() -> None:
    now = datetime.now(UTC)
    for name, expression in [("d", daily_at(now - minutes(90))), ("m", EVERY_MINUTE)]:
        item = Schedule(name, MailRun, expression)
        assert tick(item) == 0
        assert tick(item) == 0 or expression == EVERY_MINUTE
    assert Tick.objects.filter(detail="first seen").count() == 2
    assert MailRun.objects.count() <= 1  # a full minute may have come in between


def test_run_of_a_fire_time_carries_what_the_schedule_says(seen) -> None:
    fields = {"task": "echo", "args": {"text": "hello"}}
    item = Schedule("m", MailRun, EVERY_MINUTE, lane="bulk", lock_key="one", fields=fields)
    seen(item, minutes(1))
    assert tick(item) == 1
    run, fired = MailRun.objects.get(), Tick.objects.latest("fire_at")
    assert run.job_id == f"m:{fired.fire_at:%Y-%m-%dT%H:%M:%SZ}" == fired.job_id
    assert (run.lane, run.lock_key, run.task, run.args) == ("bulk", "one", "echo", fields["args"])
    assert (fired.outcome, fired.fire_at.second) == ("enqueued", 0)


@pytest.mark.django_db(transaction=True, databases=["default", "jobs"])
@pytest.mark.race
def test_schedulers_on_one_tick_fire_it_once(seen) -> None:
    items = [Schedule(f"s{number}", MailRun, EVERY_MINUTE) for number in range(5)]
    for item in items:
        seen(item, minutes(1))
    answers = values(race(*[partial(tick, item) for item in items for _ in range(6)]))
    runs = MailRun.objects.count()
    assert runs == sum(answers)
    assert 5 <= runs <= 10  # a full minute may have come in between
    assert Tick.objects.count() == 5 + runs
    assert set(Tick.objects.values_list("outcome", flat=True)) == {"enqueued"}


@pytest.mark.parametrize("ago", [minutes(5), timedelta(days=1), timedelta(days=180)])
def test_outage_is_caught_up_with_one_run_of_each_schedule(seen, ago) -> None:
    now = datetime.now(UTC)
    daily = daily_at(now - minutes(2))
    for expression in (EVERY_MINUTE, "*/5 * * * *", daily):
        item = Schedule(expression, MailRun, expression)
        seen(item, ago + minutes(5))
        assert tick(item) == 1
        assert tick(item) <= (1 if expression == EVERY_MINUTE else 0)
    assert 3 <= MailRun.objects.count() <= 4


def test_missed_time_is_skipped_where_the_schedule_says_so(seen) -> None:
    now = datetime.now(UTC)
    missed = Schedule("missed", MailRun, daily_at(now - minutes(3)), catch_up="skip")
    late = Schedule("late", MailRun, "* * * * * *", catch_up="skip")
    for item in (missed, late):
        seen(item, minutes(60))
    assert (tick(missed), tick(late)) == (0, 1)
    assert outcomes(missed) == ["skipped"]
    assert tick(missed) == 0
    assert Tick.objects.get(detail="missed").schedule == "missed"


def test_every_missed_time_is_caught_up_where_the_schedule_says_so(seen) -> None:
    item = Schedule("all", MailRun, EVERY_MINUTE, catch_up="all")
    seen(item, minutes(7))
    assert tick(item) in (7, 8)
    times = list(Tick.objects.order_by("fire_at").values_list("fire_at", flat=True))[1:]
    assert {b - a for a, b in pairwise(times)} == {minutes(1)}
    assert list(MailRun.objects.order_by("pk").values_list("job_id", flat=True)) == [
        f"all:{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in times
    ]


def test_time_that_the_lock_refuses_is_recorded_with_its_holder(seen) -> None:
    item = Schedule("once", MailRun, EVERY_MINUTE, lock_key="L")
    seen(item, minutes(5))
    holder = MailRun.objects.enqueue(job_id="holder", lock_key="L").run
    assert tick(item) == 0
    last = Tick.objects.latest("fire_at")
    assert (last.outcome, last.job_id, last.detail) == ("locked", "holder", "locked by holder")
    holder.cancel()
    assert tick(item) in (0, 1)  # what was locked is over; only a new minute fires


def test_catch_up_of_all_waits_for_the_lock_without_a_row_and_goes_on_oldest_first(seen) -> None:
    item = Schedule("all", MailRun, EVERY_MINUTE, lock_key="L", catch_up="all")
    seen(item, minutes(3))
    holder = MailRun.objects.enqueue(job_id="holder", lock_key="L").run
    for _ in range(3):
        assert tick(item) == 0
    assert outcomes(item) == []
    fired = []
    for _ in range(3):
        holder.cancel()
        assert tick(item) == 1
        holder = MailRun.objects.get(lock_key="L", state="queued")
        fired.append(holder.job_id)
    assert fired == sorted(fired)
    assert len(set(fired)) == 3


def test_schedule_with_a_lock_does_not_pile_up_while_no_worker_is_there(seen) -> None:
    item = Schedule("often", MailRun, "* * * * * *", lock_key="L")
    seen(item, minutes(1))
    assert tick(item) == 1
    eventually(lambda: tick(item) == 0 and outcomes(item)[1:] == ["locked"] * 3, 10, every=0.3)
    assert MailRun.objects.count() == 1


def test_job_id_that_is_held_is_recorded_as_a_duplicate(seen) -> None:
    item = Schedule("held", PassRun, EVERY_MINUTE)
    seen(item, minutes(1))
    assert tick(item) == 1
    Tick.objects.filter(schedule="held").delete()
    seen(item, minutes(1))
    tick(item)
    assert outcomes(item)[0] == "duplicate"
    assert PassRun.objects.count() <= 2


def test_schedule_of_another_database_records_beside_its_runs(seen) -> None:
    item = Schedule("other", OtherRun, EVERY_MINUTE)
    assert tick(item) == 0
    Tick.objects.using("jobs").update(fire_at=datetime.now(UTC) - minutes(2))
    assert tick(item) == 1
    assert outcomes(item) == ["enqueued"]
    assert OtherRun.objects.count() == 1
    assert not Tick.objects.using("default").exists()


def test_fire_time_and_its_run_are_committed_together_or_not_at_all(seen, monkeypatch) -> None:
    item = Schedule("m", MailRun, EVERY_MINUTE)
    seen(item, minutes(1))

    def broken(*_: object) -> str:
        raise OSError("between the run and its outcome")

    with monkeypatch.context() as patched:
        patched.setattr(cron, "_note", broken)
        with pytest.raises(OSError, match="between"):
            tick(item)
    assert (MailRun.objects.count(), outcomes(item)) == (0, [])
    assert tick(item) == 1


@pytest.mark.django_db(transaction=True, databases=["default", "jobs"])
def test_caller_that_holds_the_lock_uncommitted_does_not_hold_up_the_scheduler(seen) -> None:
    item = Schedule("m", MailRun, EVERY_MINUTE, lock_key="L")
    seen(item, minutes(2))

    def fire() -> datetime:
        with pytest.raises(OperationalError, match="lock timeout"):
            tick(item)
        return datetime.now(UTC)

    begun = datetime.now(UTC)
    with transaction.atomic():
        MailRun.objects.enqueue(job_id="open", lock_key="L")
        assert values(race(fire))[0] - begun < timedelta(seconds=5)
    assert outcomes(item) == []  # it is not lost
    tick(item)
    assert outcomes(item)[0] == "locked"


def test_fire_time_that_the_database_refuses_is_recorded_and_the_next_one_fires(seen) -> None:
    item = Schedule("own", MailRun, EVERY_MINUTE, catch_up="all", fields={"note": "once"})
    seen(item, minutes(3))
    with connection.cursor() as cursor:
        cursor.execute("CREATE UNIQUE INDEX own_rule ON lab_mailrun (note) WHERE note = 'once'")
    try:
        assert tick(item) == 1
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP INDEX own_rule")
    assert outcomes(item)[:3] == ["enqueued", "failed", "failed"]
    assert "own_rule" in Tick.objects.filter(outcome="failed")[0].detail


def test_old_ticks_are_pruned_but_never_a_schedules_newest(seen) -> None:
    for alias in ("default", "jobs"):
        model = MailRun if alias == "default" else OtherRun
        for days in (40, 50, 60):
            seen(Schedule("rare", model, "0 0 1 1 *"), timedelta(days=days))
            seen(Schedule("often", model, EVERY_MINUTE), timedelta(days=days - 39))
        prune_ticks(alias, timedelta(days=30))
        left = Tick.objects.using(alias)
        assert sorted(left.values_list("schedule", flat=True)) == ["often"] * 3 + ["rare"]


def test_times_are_the_same_whatever_the_sessions_time_zone(seen) -> None:
    item = Schedule("m", MailRun, EVERY_MINUTE)
    seen(item, minutes(1))
    with connections["default"].cursor() as cursor:
        cursor.execute("SET TIME ZONE 'America/St_Johns'")
    assert tick(item) == 1
    assert tick(item) in (0, 1)
