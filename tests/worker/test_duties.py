"""The supervisor's parts: asking, pulse, what is owed, burial, the crew."""

import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from runcontract.contract.states import Failure
from runcontract.lifecycle import transitions
from runcontract.lifecycle.database import (
    cancel_statements,
    execute,
    forget_connections,
    tidy_connections,
)
from runcontract.lifecycle.patience import DatabaseSilent, patience
from runcontract.lifecycle.table import table_of
from runcontract.worker import asking, crew
from runcontract.worker.asking import Databases, Unanswered
from runcontract.worker.burial import Obituary, bury
from runcontract.worker.child import ChildOptions
from runcontract.worker.clock import now
from runcontract.worker.crew import Crew, Member, cause_of_death
from runcontract.worker.owed import Owed
from runcontract.worker.pulse import Pulse
from runcontract.worker.reports import JOURNAL, Hold, LineReader, Order, Phase, Report
from runcontract.worker.supervisor import Supervisor
from tests.lab.models import MailRun
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True)
TABLE = table_of(MailRun)


def claimed(job_id: str = "one", worker: str = "me", **fields: Any) -> tuple[MailRun, Hold]:
    run = MailRun.objects.enqueue(job_id=job_id, **fields).run
    run = transitions.claim(TABLE, run.pk, run.lease, worker)
    assert run is not None
    return run, Hold(TABLE.label, run.pk, run.lease)


# Patience


def test_patience_ends_a_wait_for_the_server() -> None:
    begun = time.monotonic()
    with pytest.raises(DatabaseSilent), patience(0.2):
        execute("default", "SELECT pg_sleep(30)")
    assert time.monotonic() - begun < 5
    cancel_statements()
    forget_connections()
    assert execute("default", "SELECT 1") == [(1,)]


def test_patience_that_was_swallowed_comes_again() -> None:
    with pytest.raises(DatabaseSilent), patience(0.1):
        with pytest.raises(DatabaseSilent):
            time.sleep(10)
        time.sleep(10)


def test_patience_may_be_nested_and_begun_later() -> None:
    with pytest.raises(DatabaseSilent, match=r"0\.4"), patience(0.4):
        with patience() as begin:
            begin(5)
        time.sleep(10)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


# Asking


def test_database_that_failed_is_left_alone_for_a_second(monkeypatch) -> None:
    databases, asked = Databases(), []

    def fails() -> None:
        asked.append(1)
        raise OperationalError("away")

    for _ in range(3):
        with pytest.raises(Unanswered):
            databases.ask("default", fails)
    assert len(asked) == 1
    monkeypatch.setattr(asking, "now", lambda: now() + 1.5)
    assert databases.ask("default", lambda: 7) == 7


def test_one_answer_is_waited_for_no_longer_than_the_margin_allows(settings) -> None:
    databases = Databases()
    assert databases._limit() == asking.LEAST
    databases.until = now() + 0.3
    assert 0.1 <= databases._limit() <= 0.3
    begun = time.monotonic()
    with pytest.raises(Unanswered):
        databases.ask("default", lambda: execute("default", "SELECT pg_sleep(31)"))
    assert time.monotonic() - begun < 3
    active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(31)%%'"
    eventually(lambda: execute("default", f"{active} AND state = 'active'", []) == [(0,)])


# Pulse


def test_pulse_is_one_statement_for_all_and_tells_what_is_missing() -> None:
    pulse = Pulse(Databases())
    holds = [claimed(str(number))[1] for number in range(3)]
    before = dict(MailRun.objects.values_list("pk", "heartbeat_at"))
    begun = now()
    pulse.beat(holds)
    assert pulse.trusted_since(TABLE.label) >= begun
    assert all(run.heartbeat_at > before[run.pk] for run in MailRun.objects.all())
    MailRun.objects.filter(pk=holds[0].pk).update(lease=9)
    MailRun.objects.filter(pk=holds[1].pk).update(cancel_requested=True)
    seen = pulse.look(holds)
    assert (seen.missing, seen.cancel) == ({holds[0]}, {holds[1]})
    assert pulse.running_under([TABLE.label], ["me"]) == {
        (Hold(TABLE.label, holds[0].pk, 9), "me"),
        (holds[1], "me"),
        (holds[2], "me"),
    }


def test_pulse_of_a_locked_row_is_tried_again_soon_and_holds_up_nobody() -> None:
    pulse, other = Pulse(Databases()), connection.copy()
    (locked, first), (free, second) = claimed("locked"), claimed("free")
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT 1 FROM lab_mailrun WHERE id = %s FOR UPDATE", [locked.pk])
        pulse.beat([first, second])
        assert MailRun.objects.get(pk=free.pk).heartbeat_at > free.heartbeat_at
        assert MailRun.objects.get(pk=locked.pk).heartbeat_at == locked.heartbeat_at
        assert pulse.due_in([first]) <= asking.RETRY
        assert pulse.look([first]).missing == set()
    finally:
        other.close()


def test_first_pulse_of_a_claim_is_due_one_period_later() -> None:
    pulse = Pulse(Databases())
    _, hold = claimed()
    pulse.begin(TABLE.label)
    assert 0.3 < pulse.due_in([hold]) <= 0.5
    pulse.forget([TABLE.label])
    assert pulse.due_in([hold]) > 0
    pulse.forget([])
    assert pulse.due_in([hold]) == 0
    assert pulse.due_in([]) == 0.5


# What is owed


def owed_all(owed: Owed, seconds: float = 5) -> Owed:
    def settled() -> bool:
        owed.settle()
        return not owed

    eventually(settled, seconds)
    return owed


def test_run_is_given_back_with_its_attempt_and_a_message(redis_server) -> None:
    run, hold = claimed(lock_key="k")
    owed = Owed(Databases())
    owed.give_back(hold)
    assert owed_all(owed).refused == []
    run.refresh_from_db()
    assert (run.state, run.attempts, run.lease) == ("queued", 0, 2)
    assert redis_server.lrange("rq:queue:default", -1, -1) == [
        str(TABLE.address(run.pk, 2)).encode()
    ]


@pytest.mark.parametrize("change", [{"cancel_requested": True}, {"lease": 9}])
def test_run_that_cannot_be_given_back_is_named(change) -> None:
    run, hold = claimed()
    MailRun.objects.filter(pk=run.pk).update(**change)
    owed = Owed(Databases())
    owed.give_back(hold)
    assert owed_all(owed).refused == [hold]


def test_claim_that_was_committed_is_given_back(redis_server) -> None:
    run, hold = claimed(worker="dead")
    owed = Owed(Databases())
    owed.claimed_by(Hold(TABLE.label, run.pk, hold.lease - 1), "dead")
    owed_all(owed)
    run.refresh_from_db()
    assert (run.state, run.attempts) == ("queued", 0)


def test_claim_still_on_its_way_finds_nothing_any_more(redis_server) -> None:
    run = MailRun.objects.enqueue(job_id="queued").run
    owed = Owed(Databases())
    owed.claimed_by(Hold(TABLE.label, run.pk, run.lease), "dead")
    owed_all(owed)
    assert transitions.claim(TABLE, run.pk, run.lease, "dead") is None
    message = redis_server.lrange("rq:queue:default", -1, -1)
    assert message == [str(TABLE.address(run.pk, run.lease + 1)).encode()]
    assert transitions.claim(TABLE, run.pk, run.lease + 1, "living") is not None


def test_claim_from_the_journal_is_looked_for_twice(redis_server) -> None:
    owed = Owed(Databases())
    owed.claimed_by(Hold(TABLE.label, *JOURNAL), "dead")
    owed.settle()
    assert owed
    run, _ = claimed(worker="dead")  # it was committed between the looks
    owed_all(owed)
    run.refresh_from_db()
    assert (run.state, run.attempts) == ("queued", 0)


def test_lost_database_only_delays_what_is_owed(monkeypatch) -> None:
    run, hold = claimed()
    owed = Owed(Databases())
    owed.give_back(hold)
    with monkeypatch.context() as patched:
        patched.setattr(transitions, "give_back", _away)
        owed.settle()
    assert owed.holds == [hold]
    owed_all(owed)
    run.refresh_from_db()
    assert run.state == "queued"


def _away(*_: Any) -> None:
    raise OperationalError("away")


# Burial


def test_each_lost_run_is_settled_on_its_own(monkeypatch) -> None:
    (first, one), (_, two), (third, three) = claimed("1"), claimed("2"), claimed("3")
    MailRun.objects.filter(pk=two.pk).update(lease=9)
    tries = []
    reap = transitions.reap

    def away_at_first(*args: Any, **more: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OperationalError("away")
        if args[1] == three.pk:
            raise ValueError("broken")
        reap(*args, **more)

    monkeypatch.setattr("runcontract.worker.burial.reap", away_at_first)
    unknown = Hold("lab.gone", 1, 1)
    bury(
        [Obituary(hold, Failure.STALE, "worker died") for hold in (one, two, three, unknown)],
        lambda: False,
    )
    first.refresh_from_db()
    third.refresh_from_db()
    assert (first.state, first.failure, third.state) == ("failed", "stale", "running")
    bury([Obituary(one, Failure.STALE, "")], lambda: True)


# The crew


@contextmanager
def member(**fields: Any) -> Any:
    """A child that is only a pipe."""
    report_in, report_out = os.pipe()
    order_in, order_out = os.pipe()
    one = Member(pid=2**22 - 1, name="x", reader=LineReader(report_in), orders=order_out, born=0)
    for name, value in fields.items():
        setattr(one, name, value)
    try:
        yield one, report_out
    finally:
        one.close()
        os.close(report_out)
        os.close(order_in)


MINE = Hold(TABLE.label, 1, 1)


def test_report_of_another_claim_forgets_the_orders_for_the_last() -> None:
    with member() as (one, reports):
        os.write(reports, Report(Phase.PERFORMING, MINE, 5.0).encode())
        one.listen()
        assert (one.performs, one.ready, one.worked) == (True, True, True)
        assert one.deadline is not None
        one.order(Order.CANCEL, grace=1)
        assert one.kill_at is not None
        os.write(reports, Report(Phase.SETTLING, MINE).encode())
        one.listen()
        assert (one.performs, one.kill_at, one.told) == (False, None, Order.CANCEL)
        os.write(reports, Report(Phase.IDLE).encode())
        one.listen()
        assert (one.told, one.hold, one.deadline) == (None, None, None)
        one.order(Order.CANCEL, grace=1)
        assert one.told is None


def test_garbage_in_the_reports_does_not_end_the_supervisor(caplog) -> None:
    with member() as (one, reports):
        os.write(reports, b"a job wrote this\n" + Report(Phase.IDLE).encode())
        one.listen()
        assert one.ready


def _open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_fork_that_fails_leaves_no_pipe_and_is_tried_again(monkeypatch) -> None:
    before = _open_files()

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(crew.os, "fork", refuse)
    supervisor = Supervisor(ChildOptions(["default"]), 1, 1.0)
    for _ in range(3):
        supervisor._staff()
    assert supervisor._failed_starts >= 2
    assert supervisor._start_at > now() - 1
    assert _open_files() <= before + 2 + 1  # its wake-up pipe
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert Crew(ChildOptions(["default"])).members == []


def test_order_to_give_up_is_not_weakened_by_a_deadline(monkeypatch) -> None:
    supervisor = Supervisor(ChildOptions(["default"]), 1, 1.0)
    with member(hold=MINE, phase=Phase.PERFORMING, deadline=now() - 1) as (one, _):
        supervisor.crew.members.append(one)
        one.order(Order.GIVE_UP, grace=60, reason="fence")
        supervisor._enforce()
        assert (one.told, one.reason, one.deadline) == (Order.GIVE_UP, "fence", None)
        supervisor.crew.members.clear()


def test_child_that_ended_its_perform_while_it_was_to_give_up_cannot_hold_up_the_drain() -> None:
    supervisor = Supervisor(ChildOptions(["default"]), 1, 0.0)
    supervisor._stops = 1
    with member(hold=MINE, phase=Phase.PERFORMING) as (one, reports):
        supervisor.crew.members.append(one)
        supervisor._drain()
        assert one.told is Order.GIVE_UP
        os.write(reports, Report(Phase.SETTLING, MINE).encode())
        one.listen()
        settling = one.kill_at
        supervisor._drain()
        assert (settling, one.kill_at is None) == (None, False)
        supervisor.crew.members.clear()


def test_settling_child_does_not_make_the_supervisor_spin() -> None:
    supervisor = Supervisor(ChildOptions(["default"]), 1, 1.0)
    with member(hold=MINE, phase=Phase.SETTLING) as (one, _):
        supervisor.crew.members.append(one)
        supervisor.pulse.begin(TABLE.label)
        assert supervisor._timeout() > 0.2
        supervisor.crew.members.clear()


def test_cause_of_death_is_said_in_words() -> None:
    assert cause_of_death(9) == "worker died (signal 9)"
    assert cause_of_death(3 << 8) == "worker died (exit code 3)"


# What a job leaves in its session


@pytest.mark.parametrize("mess", ["atomic", "autocommit", "begin", "closed", "broken"])
def test_session_is_clean_after_any_job(mess) -> None:
    run = MailRun.objects.enqueue(job_id="x").run
    if mess == "atomic":
        transaction.atomic().__enter__()
        MailRun.objects.filter(pk=run.pk).update(note="uncommitted")
    elif mess == "autocommit":
        connection.set_autocommit(False)
        MailRun.objects.filter(pk=run.pk).update(note="uncommitted")
    elif mess == "begin":
        execute("default", "BEGIN")
        MailRun.objects.filter(pk=run.pk).update(note="uncommitted")
    elif mess == "closed":
        assert connection.connection is not None
        connection.connection.close()
        connection.errors_occurred = True
    else:
        transaction.atomic().__enter__()
        assert connection.connection is not None
        connection.connection.close()
        connection.close()
    tidy_connections(idle=False)
    execute("default", "UPDATE lab_mailrun SET progress = 7")
    assert connection.get_autocommit()
    assert not connection.in_atomic_block
    forget_connections()
    run.refresh_from_db()
    assert (run.note, run.progress) == ("", 7)
