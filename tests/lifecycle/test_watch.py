"""Reaping: two looks, and nobody who could still prove that he lives."""

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from runcontract.lifecycle import watch as module
from runcontract.lifecycle.database import DatabaseFailure
from runcontract.lifecycle.table import table_of
from runcontract.lifecycle.watch import Watch, deaf_for_a_while
from tests.lab.models import AgainRun, MailRun, Order, OtherRun, PassRun
from tests.support.race import race, values

pytestmark = [
    pytest.mark.django_db(databases=["default", "jobs"]),
    pytest.mark.usefixtures("redis_server"),
]

MAIL = table_of(MailRun)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> Watch:
    return Watch(clock)


def running(count: int = 1, model=MailRun, silent: float = 3600, **values) -> list:
    rows = [
        model(
            job_id=f"r{number:03}",
            lock_key=f"l{number:03}",
            state="running",
            lease=1,
            worker="host-1",
            heartbeat_at=Now() - timedelta(seconds=silent),
            **values,
        )
        for number in range(count)
    ]
    return model.objects.bulk_create(rows)


def state(model=MailRun) -> list[str]:
    return list(model.objects.order_by("pk").values_list("state", flat=True))


def test_silent_run_is_reaped_by_the_second_look_three_seconds_later(watch, clock) -> None:
    running()
    assert (watch.reap(MAIL), watch.suspects) == (0, 1)
    clock.now += 2.9
    assert watch.reap(MAIL) == 0
    clock.now += 0.2
    assert (watch.reap(MAIL), watch.suspects) == (1, 0)
    run = MailRun.objects.get()
    assert (run.state, run.failure, run.lease, run.stats["lost"]) == ("failed", "stale", 2, 1)
    assert "host-1 was lost" in str(run.last_error)
    assert run.held_until > run.finished_at


def test_run_that_proves_its_life_between_two_looks_is_left(watch, clock) -> None:
    running(3)
    watch.reap(MAIL)
    first, second, _ = MailRun.objects.order_by("pk")
    MailRun.objects.filter(pk=first.pk).update(heartbeat_at=Now())
    MailRun.objects.filter(pk=second.pk).update(
        lease=F("lease") + 1, heartbeat_at=Now() - timedelta(seconds=3600)
    )
    clock.now += 4
    assert watch.reap(MAIL) == 1
    assert state() == ["running", "running", "failed"]


@pytest.mark.django_db(transaction=True, databases=["default", "jobs"])
def test_row_that_is_locked_is_left_for_later(watch, clock) -> None:
    running()
    watch.reap(MAIL)
    clock.now += 4
    with transaction.atomic():
        MailRun.objects.select_for_update().get()
        assert values(race(lambda: watch.reap(MAIL))) == [0]
    assert watch.reap(MAIL) == 0  # nobody could write its pulse meanwhile: this is a first look
    clock.now += 4
    assert watch.reap(MAIL) == 1


def test_pulse_ahead_of_the_clock_is_believed_only_after_the_time_that_makes_it_stale(
    watch, clock
) -> None:
    running(silent=-3600)  # the clock was set back; a living supervisor writes another pulse soon
    watch.reap(MAIL)
    clock.now += 2.4
    assert watch.reap(MAIL) == 0  # STALE_AFTER is 2.5 s
    clock.now += 60
    assert watch.reap(MAIL) == 1


def test_suspects_of_another_table_or_database_are_kept(watch, clock) -> None:
    running()
    running(model=OtherRun)
    running(model=PassRun)
    for table in (MAIL, table_of(OtherRun), table_of(PassRun)):
        watch.reap(table)
    assert watch.suspects == 3
    watch.forget("jobs")
    assert watch.suspects == 2
    clock.now += 4
    assert [watch.reap(table_of(model)) for model in (OtherRun, PassRun, MailRun)] == [0, 1, 1]
    watch.forget()
    assert watch.suspects == 0


def test_lost_run_is_tried_again_where_the_policy_says_so(watch, clock) -> None:
    running(2, AgainRun, attempts=1)
    AgainRun.objects.filter(job_id="r001").update(stats={"lost": 2})
    watch.reap(table_of(AgainRun))
    clock.now += 4
    assert watch.reap(table_of(AgainRun)) == 2
    again, lost = AgainRun.objects.order_by("pk")
    assert (again.state, again.lock_key, again.lease) == ("queued", "l000", 2)
    assert again.next_retry_at is not None
    assert again.dispatched_at is None
    assert (lost.state, lost.failure) == ("failed", "stale")


@pytest.mark.parametrize("hook", ["broken", "broken_sql"])
def test_on_failed_that_raises_holds_up_neither_its_run_nor_others(watch, clock, hook) -> None:
    running(5, hook=hook)
    MailRun.objects.filter(job_id="r002").update(hook="keep")
    watch.reap(MAIL)
    clock.now += 4
    assert watch.reap(MAIL) == 5
    assert state() == ["failed"] * 5
    assert Order.objects.get().name == "failed r002"


@pytest.mark.django_db(transaction=True, databases=["default", "jobs"])
def test_on_failed_that_breaks_the_commit_is_left_out_the_second_time(
    watch, clock, monkeypatch, caplog
) -> None:
    def late(run, error) -> None:
        """What a deferred constraint refuses, no savepoint can catch."""
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO lab_syncrun SELECT * FROM lab_syncrun WHERE false")
            cursor.execute("INSERT INTO late (n) VALUES (1), (1)")

    running(2)
    monkeypatch.setattr(MailRun, "on_failed", late)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    try:
        watch.reap(MAIL)
        clock.now += 4
        assert watch.reap(MAIL) == 0
        assert caplog.text.count("could not be reaped") == 2
        assert watch.reap(MAIL) == 2
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE late")
    assert state() == ["failed"] * 2
    assert "not called" in str(MailRun.objects.first().last_error["on_failed"])


def test_run_that_can_never_be_reaped_is_said_once(watch, clock, monkeypatch, caplog) -> None:
    running(2)

    def refuse(table, pk, *_, **__) -> None:
        if pk == MailRun.objects.order_by("pk")[0].pk:
            raise RuntimeError("as always")

    monkeypatch.setattr(module, "reap_silent", refuse)
    watch.reap(MAIL)
    for _ in range(4):
        clock.now += 4
        watch.reap(MAIL)
    assert caplog.text.count("RuntimeError: as always") == 1
    assert "Reaped lab.mailrun" in caplog.text


def test_database_that_goes_away_is_not_taken_for_a_bad_row(watch, clock, monkeypatch) -> None:
    running()

    def gone(*_: object, **__: object) -> None:
        raise DatabaseFailure[0]("gone")

    monkeypatch.setattr(module, "reap_silent", gone)
    monkeypatch.setattr(module, "answers", lambda alias: False)
    watch.reap(MAIL)
    clock.now += 4
    with pytest.raises(DatabaseFailure):
        watch.reap(MAIL)
    monkeypatch.setattr(module, "answers", lambda alias: True)
    assert watch.reap(MAIL) == 0  # a statement that was refused, and the next row's turn


def test_row_that_the_database_fails_on_does_not_hold_up_the_others(
    watch, clock, monkeypatch
) -> None:
    bad, _ = running(2)
    real = module.reap_silent

    def failing(table, pk, *args, **how) -> None:
        if pk == bad.pk:
            raise DatabaseFailure[0]("deadlock detected")
        real(table, pk, *args, **how)

    monkeypatch.setattr(module, "reap_silent", failing)
    monkeypatch.setattr(module, "answers", lambda alias: True)
    watch.reap(MAIL)
    clock.now += 4
    assert watch.reap(MAIL) == 1
    assert state() == ["running", "failed"]


def test_slow_on_failed_does_not_keep_one_look_for_ever(watch, clock, monkeypatch) -> None:
    def slow(run, error) -> None:
        clock.now += 2

    monkeypatch.setattr(MailRun, "on_failed", slow)
    running(10)
    watch.reap(MAIL)
    clock.now += 4
    looks = [watch.reap(MAIL) for _ in range(4)]
    assert looks == [3, 3, 3, 1]


def test_between_two_rows_somebody_is_asked(watch, clock) -> None:
    running(3)
    watch.reap(MAIL)
    clock.now += 4

    def stop() -> None:
        raise KeyError("stop")

    with pytest.raises(KeyError):
        watch.reap(MAIL, stop)
    assert sorted(state()) == ["failed", "running", "running"]


@pytest.mark.django_db(transaction=True, databases=["default", "jobs"])
@pytest.mark.race
def test_two_watchdogs_reap_a_run_once(clock) -> None:
    running(20)
    watches = [Watch(clock) for _ in range(4)]
    for one in watches:
        one.reap(MAIL)
    clock.now += 4
    reaped = values(race(*[lambda one=one: one.reap(MAIL) for one in watches]))
    assert sum(reaped) == 20
    assert set(MailRun.objects.values_list("lease", flat=True)) == {2}


def test_postgres_that_has_just_started_was_deaf() -> None:
    assert not deaf_for_a_while("default", timedelta(0))
    assert deaf_for_a_while("default", timedelta(days=3650))


def test_pulse_is_compared_exactly_whatever_the_sessions_time_zone(watch, clock) -> None:
    running()
    with connection.cursor() as cursor:
        cursor.execute("SET TIME ZONE 'Asia/Kathmandu'")
    watch.reap(MAIL)
    clock.now += 4
    assert watch.reap(MAIL) == 1
