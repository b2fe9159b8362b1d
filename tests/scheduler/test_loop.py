"""A pass: everything that is due, and nothing that one bad part could hold up."""

import logging
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import IntegrityError, connection, connections
from django.db.models.functions import Now
from django.db.utils import InterfaceError, OperationalError, ProgrammingError

from runcontract.lifecycle.watch import Watch
from runcontract.models import SchedulerLease, Tick
from runcontract.scheduler import epochs, guard, hearing, lease, loop
from runcontract.scheduler.hearing import Hearing
from runcontract.scheduler.loop import Scheduler
from runcontract.scheduler.said import Said
from runcontract.scheduler.schedules import Schedule
from runcontract.transport import breaker_of
from tests.lab.models import MailRun, OtherRun, PassRun, SyncRun
from tests.support.wait import eventually

from .conftest import minutes, outcomes

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "jobs"]),
    pytest.mark.usefixtures("redis_server"),
]

LANE = "rq:queue:default"


@pytest.fixture(autouse=True)
def closed_breaker():
    breaker_of("default")._closed_until = 0.0
    yield
    breaker_of("default")._closed_until = 0.0


@pytest.fixture
def declared(monkeypatch) -> list[Schedule]:
    """The schedules of the project, for this test."""
    items: list[Schedule] = []
    monkeypatch.setattr(loop, "schedules", lambda: items)
    monkeypatch.setattr(loop, "problems", lambda: [p for p in (i.problem() for i in items) if p])
    return items


@pytest.fixture
def scheduler(monkeypatch) -> Scheduler:
    # The servers of the tests are young, which is no reason to spare anybody here.
    monkeypatch.setattr(hearing, "deaf_for_a_while", lambda *_: False)
    made = Scheduler()
    made.watch = Watch(lambda: made._seconds)
    made._seconds = 0.0
    return made


@pytest.fixture
def clock(monkeypatch):
    """Moves the clock that goes on while the machine sleeps."""
    moved = [0.0]
    real = lease.boottime

    def boottime() -> float:
        return real() + moved[0]

    monkeypatch.setattr(lease, "boottime", boottime)
    monkeypatch.setattr(hearing, "boottime", boottime)

    def forward(seconds: float) -> None:
        moved[0] += seconds

    return forward


def unsent(count: int = 1, model=MailRun) -> None:
    model.objects.bulk_create([model(job_id=f"u{number}") for number in range(count)])


def stale(model=MailRun, **values):
    old = Now() - timedelta(hours=1)
    fields = {"state": "running", "lease": 1, "worker": "w", "heartbeat_at": old} | values
    return model.objects.bulk_create([model(job_id="stale", **fields)])[0]


def look_again(scheduler: Scheduler) -> None:
    """The next pass is the second look."""
    scheduler._seconds += 10
    scheduler._due.clear()


def test_one_pass_does_everything_that_is_due(scheduler, declared, seen, redis_server) -> None:
    declared.append(Schedule("m", MailRun, "* * * * *"))
    seen(declared[0], minutes(1))
    unsent(2, SyncRun)
    unsent(3, OtherRun)
    ended = {"state": "succeeded", "finished_at": Now(), "held_until": Now() - minutes(1)}
    PassRun.objects.bulk_create([PassRun(job_id="over", **ended)])
    run = stale()
    scheduler.step()
    assert MailRun.objects.filter(state="queued").count() == 1
    assert redis_server.llen(LANE) == 6
    assert PassRun.objects.get().released_at is not None
    look_again(scheduler)
    scheduler.step()
    run.refresh_from_db()
    assert run.failure == "stale"


def test_standby_does_nothing_and_says_so_once(scheduler, redis_server, caplog) -> None:
    caplog.set_level(logging.INFO, "runcontract")
    other = lease.Lease()
    other.take()
    unsent()
    for _ in range(5):
        scheduler.step()
    assert not redis_server.exists(LANE)
    assert caplog.text.count("Standing by") == 1
    other.release()
    scheduler.step()
    assert redis_server.llen(LANE) == 1
    assert "Leading, term 2" in caplog.text


def test_bad_schedules_stop_only_themselves_and_are_said_once(
    scheduler, declared, seen, caplog
) -> None:
    names = ["default", "lease", "jobs", "the lease", "database default"]  # no name is special
    declared += [
        Schedule("never", MailRun, "0 0 31 2 *"),
        Schedule("mars", MailRun, "* * * * *", "Mars/Olympus"),
        Schedule("nothing", MailRun, None),  # type: ignore[arg-type]
        *[Schedule(name, MailRun, "* * * * *") for name in names],
    ]
    for item in declared:
        seen(item, minutes(1))
    for _ in range(3):
        scheduler.step()
    assert {run.job_id.rpartition(":20")[0] for run in MailRun.objects.all()} == set(names)
    assert caplog.text.count("no time that ever comes") == 2
    assert caplog.text.count("Mars/Olympus") == 1
    assert "Traceback" not in caplog.text


def test_schedule_that_fails_at_each_tick_is_said_once_and_its_fire_time_is_kept(
    scheduler, declared, seen, caplog, monkeypatch
) -> None:
    declared += [Schedule("bad", PassRun, "* * * * *"), Schedule("good", MailRun, "* * * * *")]
    for item in declared:
        seen(item, minutes(1))
    count = iter(range(1000))

    def explode(*_: object, **__: object) -> None:
        raise ValueError(f"differently each time: {next(count)}")

    with monkeypatch.context() as patched:
        patched.setattr(PassRun, "__init__", explode)
        patched.setattr("runcontract.lifecycle.enqueue._known_by_hint", explode)
        for _ in range(5):
            scheduler.step()
    assert caplog.text.count("schedule bad") == 1
    scheduler.step()
    assert "Over: schedule bad" in caplog.text
    assert outcomes(declared[0])[0] == "enqueued"
    assert outcomes(declared[1])[0] == "enqueued"


def test_table_that_is_missing_holds_up_no_other(scheduler, redis_server, caplog) -> None:
    unsent(2)
    unsent(2, SyncRun)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE lab_mailrun RENAME TO gone")
    try:
        for _ in range(3):
            scheduler._due.clear()
            scheduler.step()
        assert redis_server.llen(LANE) == 2
        assert caplog.text.count("sweep of lab.mailrun") == 1
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE gone RENAME TO lab_mailrun")
    scheduler.step()
    assert redis_server.llen(LANE) == 4


def test_database_that_is_away_holds_up_no_other(
    scheduler, declared, seen, redis_server, caplog, monkeypatch
) -> None:
    declared += [Schedule("a", OtherRun, "* * * * *"), Schedule("b", MailRun, "* * * * *")]
    seen(declared[1], minutes(1))
    unsent(2)
    unsent(2, OtherRun)
    monkeypatch.setattr(guard, "LEFT_ALONE", 0.0)
    home = connections["jobs"].settings_dict
    with monkeypatch.context() as patched:
        connections["jobs"].close()
        patched.setitem(home, "HOST", "/nowhere")
        for _ in range(4):
            scheduler._due.clear()
            scheduler.step()
        # Each run once: the epoch of the reachable database was remembered.
        assert redis_server.llen(LANE) == 3
        assert outcomes(declared[1]) == ["enqueued"]
    connections["jobs"].close()
    scheduler.step()
    assert redis_server.llen(LANE) == 5
    assert caplog.text.count("Database jobs is away") == 1
    assert caplog.text.count("Over: database jobs") == 1
    assert "Traceback" not in caplog.text


def test_database_of_the_lease_that_is_away_does_not_hold_up_the_others(
    scheduler, redis_server, monkeypatch
) -> None:
    unsent(2, OtherRun)
    monkeypatch.setattr(guard, "LEFT_ALONE", 0.0)
    with monkeypatch.context() as patched:
        connection.close()
        patched.setitem(connection.settings_dict, "HOST", "/nowhere")
        scheduler.step()
        assert redis_server.llen(LANE) == 2
    connection.close()
    scheduler.step()
    assert scheduler.lease.leading


def test_statement_that_is_refused_is_not_taken_for_an_outage(
    scheduler, redis_server, monkeypatch, caplog
) -> None:
    unsent(1, SyncRun)
    run = stale(SyncRun)

    def timeout(table, between) -> None:
        if table.model is MailRun:
            raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr(loop, "release_windows", timeout)
    scheduler.step()
    look_again(scheduler)
    scheduler.step()
    assert caplog.text.count("statement timeout") == 1
    run.refresh_from_db()
    assert run.failure == "stale"
    assert redis_server.llen(LANE) == 1


def test_session_that_is_cut_is_opened_again(scheduler, redis_server) -> None:
    scheduler.step()
    for count in range(3):
        connections["default"].ensure_connection()
        connections["jobs"].ensure_connection()
        cut_sessions_of_both()
        unsent_at(count)
        wanted = count + 1
        eventually(lambda: sent_after_a_step(scheduler, redis_server) == wanted, 5)
    assert scheduler.lease.leading


def sent_after_a_step(scheduler: Scheduler, redis_server) -> int:
    scheduler.step()
    return redis_server.llen(LANE)


def cut_sessions_of_both() -> None:
    """From a session of another database, so that ours are cut too."""
    parameters = connections["default"].get_connection_params()
    with psycopg.connect(
        host=parameters["host"], user=parameters["user"], dbname="postgres", autocommit=True
    ) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = %s AND pid <> pg_backend_pid()",
            [parameters["dbname"]],
        )


def unsent_at(count: int) -> None:
    connection.close()
    MailRun.objects.bulk_create([MailRun(job_id=f"c{count}")])


def test_missing_tables_of_the_scheduler_are_said_once_and_waited_for(scheduler, caplog) -> None:
    name = SchedulerLease._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {name} RENAME TO gone")
    try:
        for _ in range(3):
            scheduler.step()
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE gone RENAME TO {name}")
    assert caplog.text.count("Failed, and is tried again: the scheduler") == 1
    scheduler.step()
    assert scheduler.lease.leading


def test_leader_that_is_replaced_in_mid_pass_stands_by_at_once(
    scheduler, monkeypatch, clock
) -> None:
    scheduler.step()
    seen: list[str] = []

    def sweep(table, between) -> None:
        seen.append(table.label)
        SchedulerLease.objects.update(holder="another", term=99)
        clock(10)

    monkeypatch.setattr(loop, "sweep_unsent", sweep)
    scheduler.step()
    assert len(seen) == 1
    assert not scheduler.lease.leading


def test_long_sweep_keeps_the_lease(scheduler, monkeypatch, clock) -> None:
    unsent(40)
    monkeypatch.setattr("runcontract.lifecycle.sweep.BATCH", 10)
    real = epochs.sweep_everything
    terms: list[object] = []

    def slow(table, names, between):
        def step() -> None:
            clock(1.5)  # of a lease of 2 s
            between()
            terms.append(SchedulerLease.objects.get().expires_at > datetime.now(UTC))

        return real(table, names, step)

    monkeypatch.setattr(epochs, "sweep_everything", slow)
    MailRun.objects.update(dispatched_at=Now())
    scheduler.step()
    assert terms == [True] * 4
    assert scheduler.lease.term == 1


def test_stop_is_heard_between_two_batches(scheduler, redis_server, monkeypatch) -> None:
    scheduler.step()
    monkeypatch.setattr("runcontract.lifecycle.sweep.BATCH", 10)
    unsent(40)
    monkeypatch.setattr(scheduler, "_live_on", lambda: redis_server.llen(LANE) and stop())

    def stop() -> None:
        scheduler._on_stop(15, None)

    scheduler.step()
    assert redis_server.llen(LANE) == 10


# A waiting retry meets another that holds the same lock.


def test_due_retries_of_all_tables_are_promoted_in_one_tick_and_locks_are_kept(
    scheduler, redis_server, caplog
) -> None:
    due = Now() - timedelta(seconds=1)
    waiting = MailRun.objects.create(job_id="a", lock_key="K", next_retry_at=Now() + minutes(5))
    assert MailRun.objects.enqueue(job_id="b", lock_key="K").reason == "locked"
    for model in (MailRun, SyncRun):
        rows = [model(job_id=f"r{n}", lock_key=f"l{n}", next_retry_at=due) for n in range(20)]
        model.objects.bulk_create(rows)
    MailRun.objects.create(job_id="z1", lock_key="Z", next_retry_at=due)
    with pytest.raises(IntegrityError):
        MailRun.objects.create(job_id="z2", lock_key="Z", next_retry_at=due)
    with pytest.raises(IntegrityError):
        MailRun.objects.filter(pk=waiting.pk).update(lock_key="Z")
    scheduler.step()
    assert redis_server.llen(LANE) == 41
    for _ in range(4):
        scheduler.step()
    assert redis_server.llen(LANE) == 41
    MailRun.objects.filter(pk=waiting.pk).update(next_retry_at=due)
    scheduler.step()  # it is no conflict with itself
    assert redis_server.llen(LANE) == 42
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# Silence that nobody could have heard.


def silent_is_reaped(scheduler: Scheduler, run) -> bool:
    scheduler._due.clear()
    scheduler.step()
    look_again(scheduler)
    scheduler.step()
    run.refresh_from_db()
    return run.state == "failed"


def test_nobody_is_reaped_for_a_pause_of_the_scheduler_itself(scheduler, clock, caplog) -> None:
    run = stale()
    scheduler.step()
    clock(600)  # past the lease, too
    assert not silent_is_reaped(scheduler, run)
    assert caplog.text.count("was paused") == 1
    clock(1.5)  # two heartbeats are 1 s
    assert silent_is_reaped(scheduler, run)


def test_nobody_is_reaped_for_an_outage_of_the_database(scheduler, clock, monkeypatch) -> None:
    here, there = stale(), stale(OtherRun)
    monkeypatch.setattr(guard, "LEFT_ALONE", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(guard, "answers", lambda alias: alias != "jobs")
        patched.setattr(loop, "release_windows", refuse_jobs)
        scheduler.step()
    assert silent_is_reaped(scheduler, here)
    there.refresh_from_db()
    assert there.state == "running"
    clock(1.5)
    assert silent_is_reaped(scheduler, there)


def refuse_jobs(table, between) -> None:
    if table.alias == "jobs":
        raise InterfaceError("connection already closed")


def test_nobody_is_reaped_for_an_outage_of_the_leases_database(
    scheduler, clock, monkeypatch
) -> None:
    run = stale()
    scheduler.step()
    with monkeypatch.context() as patched:
        patched.setattr(guard, "answers", lambda alias: False)
        patched.setattr(guard, "LEFT_ALONE", 0.0)
        patched.setattr(scheduler.lease, "keep", lambda: (_ for _ in ()).throw(OperationalError()))
        scheduler.step()
    assert not silent_is_reaped(scheduler, run)
    clock(1.5)
    assert silent_is_reaped(scheduler, run)


def test_nobody_is_reaped_while_postgres_has_just_started(scheduler, monkeypatch) -> None:
    run = stale()
    monkeypatch.setattr(hearing, "deaf_for_a_while", lambda *_: True)
    assert not silent_is_reaped(scheduler, run)
    monkeypatch.setattr(hearing, "deaf_for_a_while", lambda *_: False)
    assert silent_is_reaped(scheduler, run)


def test_slow_statement_is_no_pause(monkeypatch) -> None:
    monkeypatch.setattr(hearing, "OWN_PAUSE", 0.4)
    monkeypatch.setattr(hearing, "LISTEN_EVERY", 0.05)
    listening, deaf = Hearing(), Hearing()
    listening.listen()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.8)")
    assert (listening.was_paused(), deaf.was_paused()) == (False, True)
    assert not deaf.was_paused()  # said once


# Once, and what is said.


def test_once_reaps_within_the_call(scheduler, monkeypatch, redis_server) -> None:
    scheduler.watch = Watch()
    run = stale()
    unsent()
    assert scheduler.once() == 0
    run.refresh_from_db()
    assert run.failure == "stale"
    assert redis_server.llen(LANE) == 1
    assert not SchedulerLease.objects.exists()  # whoever leads


def test_once_tells_that_something_could_not_be_done(scheduler, declared) -> None:
    declared.append(Schedule("never", MailRun, "0 0 31 2 *"))
    assert scheduler.once() == 1


def test_state_is_said_when_it_begins_and_when_it_is_over(caplog) -> None:
    said = Said()
    for _ in range(3):
        said.begins("x", "X is bad.")
        said.fails("y", OperationalError("gone\nsecond line"))
        said.fails("z", ProgrammingError("no such table"))
    assert bool(said)
    assert len(caplog.records) == 3
    assert "second line" not in caplog.text
    for what in "xyz" * 2:
        said.over(what)
    assert not said
    assert len(caplog.records) == 6


def test_ticks_are_pruned_in_every_database(scheduler, declared, seen) -> None:
    for item in (Schedule("m", MailRun, "* * * * *"), Schedule("o", OtherRun, "* * * * *")):
        for days in (31, 40, 50):
            seen(item, timedelta(days=days))
    scheduler.step()
    for alias in ("default", "jobs"):
        assert Tick.objects.using(alias).count() == 1


def test_pause_in_the_middle_of_a_pass_is_noticed_before_the_next_reaping(
    scheduler, monkeypatch, clock
) -> None:
    run = stale()
    scheduler.step()
    look_again(scheduler)
    monkeypatch.setattr(loop, "sweep_unsent", lambda *_: clock(0.2))
    scheduler.lease.keep = lambda: None  # a long lease
    monkeypatch.setattr(loop, "sweep_lost", lambda *_: clock(6))
    scheduler.step()
    run.refresh_from_db()
    assert run.state == "running"
