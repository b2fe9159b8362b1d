"""Real connections that meet at a barrier: enqueue against enqueue and against a run's end."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from runcontract.lifecycle import bulk, transitions
from runcontract.lifecycle import enqueue as module
from tests.lab.models import MailRun, Order, PassRun
from tests.support.race import race, values
from tests.support.runs import (
    again,
    change,
    claim,
    claimed,
    messages,
    queued,
    row_of,
    sql,
    succeeded,
    table,
)
from tests.support.wait import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server"),
]

THREADS = 50


def waiting_backends() -> int:
    """Sessions that wait for another's lock."""
    found = sql(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND datname = current_database()"
    )
    return int(found[0][0])


@pytest.mark.parametrize("outer", [False, True], ids=["alone", "in_a_transaction"])
@pytest.mark.parametrize("expired", [False, True], ids=["new", "expired_holder"])
def test_fifty_at_once_with_one_job_id_make_one_run(
    outer: bool, expired: bool, redis_server: Any
) -> None:
    """H17: each caller gets the same run, and no exception."""
    if expired:
        change(succeeded(MailRun, job_id="a"), "held_until = now() - interval '1 s'")
        redis_server.flushall()

    def enqueue() -> Any:
        if not outer:
            return MailRun.objects.enqueue(job_id="a")
        with transaction.atomic():
            Order.objects.create()
            answer = MailRun.objects.enqueue(job_id="a")
            Order.objects.create()
        return answer

    answers = values(race(*[enqueue] * THREADS))
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.run.pk for answer in answers}) == 1
    assert {answer.reason for answer in answers} == {"", "duplicate"}
    assert MailRun.objects.filter(released_at=None).count() == 1
    assert len(messages(redis_server)) == 1
    assert Order.objects.count() == (2 * THREADS if outer else 0)


def test_fifty_at_once_for_one_lock_make_one_run(redis_server: Any) -> None:
    """H17: fifty job_ids."""
    answers = values(
        race(*[
            partial(MailRun.objects.enqueue, job_id=f"{n}", lock_key="K")
            for n in range(THREADS)
        ])
    )  # fmt: skip
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.run.pk for answer in answers}) == 1
    assert len(messages(redis_server)) == 1


@pytest.mark.parametrize("given", [{"job_id": "a"}, {"lock_key": "K"}])
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_who_meets_an_uncommitted_twin_waits_for_its_end(given: Any, ends: str) -> None:
    """H17: after S1's rollback S2's row exists; H16: after its commit S2 gets it."""
    begun, free = threading.Event(), threading.Event()

    def first() -> Any:
        with transaction.atomic():
            run = queued(MailRun, **given)
            begun.set()
            assert free.wait(30)
            if ends == "rollback":
                transaction.set_rollback(True)
        return run

    def second() -> Any:
        assert begun.wait(30)
        return MailRun.objects.enqueue(**given)

    def release() -> None:
        eventually(lambda: waiting_backends() == 1, 30)
        free.set()

    run, answer, _ = values(race(first, second, release))
    assert answer.created is (ends == "rollback")
    assert (answer.run.pk == run.pk) is (ends == "commit")
    assert MailRun.objects.count() == 1


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("given", [{"job_id": "a"}, {"lock_key": "K"}])
def test_a_serialization_failure_is_passed_on_and_leaves_no_row(isolation: str, given: Any) -> None:
    """H16."""
    seen, made = threading.Event(), threading.Event()

    def old_snapshot() -> Any:
        with transaction.atomic():
            sql(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
            Order.objects.count()
            seen.set()
            assert made.wait(30)
            Order.objects.create()
            return MailRun.objects.enqueue(**given)

    def other() -> Any:
        assert seen.wait(30)
        run = queued(MailRun, **given)
        made.set()
        return run

    outcome, other_outcome = race(old_snapshot, other)
    assert other_outcome.error is None
    assert isinstance(outcome.error, OperationalError)
    assert "serialize" in str(outcome.error)
    assert MailRun.objects.count() == 1
    assert not Order.objects.exists()


def test_a_loser_never_misses_a_winner_that_is_done_already() -> None:
    """H17: the winner succeeds while the losers look for the active row."""
    stop = threading.Event()

    def worker() -> int:
        done = 0
        while not stop.is_set() or MailRun.objects.filter(state="queued").exists():
            run = transitions.claim_waiting(table(MailRun), ["default"], "w")
            if run is not None:
                transitions.succeed(run, {})
                done += 1
        return done

    def caller() -> list[Any]:
        return [MailRun.objects.enqueue(job_id=f"{n}", lock_key="K") for n in range(40)]

    def callers() -> list[Any]:
        try:
            return [answer for part in _together(caller, 6) for answer in part]
        finally:
            stop.set()

    done, answers = values(race(worker, callers))
    assert all(answer.run is not None for answer in answers)
    assert {answer.reason for answer in answers} <= {"", "duplicate", "locked"}
    assert done == sum(answer.created for answer in answers) == MailRun.objects.count()


def test_bulk_calls_in_opposite_order_do_not_deadlock(redis_server: Any, monkeypatch: Any) -> None:
    """By lock, each with job_ids of its own; by job_id; and by both. In many small statements."""
    monkeypatch.setattr(bulk, "CHUNK", 4)
    for round_, rows in enumerate([
        [{"lock_key": f"lock {n}"} for n in range(80)],
        [{"job_id": f"job {n}"} for n in range(80)],
        [{"job_id": f"both {n}", "lock_key": f"both {n}"} for n in range(80)],
    ]):  # fmt: skip

        def call(given: list[dict[str, str]]) -> list[Any]:
            with transaction.atomic():
                return MailRun.objects.bulk_enqueue(given)

        answers = values(
            race(*[partial(call, g) for g in (rows, rows[::-1], rows[40:] + rows[:40])])
        )
        assert sum(bool(answer) for part in answers for answer in part) == 80
        assert MailRun.objects.count() == 80 * (round_ + 1)
    assert len(messages(redis_server)) == 240


@pytest.mark.parametrize("model", [MailRun, PassRun])
def test_a_rerun_asked_while_the_holder_ends_is_never_lost(model: Any) -> None:
    """Either the holder closes with a follow-up, or the caller's own run is created."""
    for number in range(15):
        lock = f"K{number}"
        run = claimed(model, job_id=f"a{number}", lock_key=lock)
        answer, _ = values(
            race(
                partial(
                    model.objects.enqueue, job_id=f"b{number}", lock_key=lock, if_locked="rerun"
                ),
                partial(transitions.succeed, run, {}),
            )
        )
        assert answer.created or answer.rerun
        more = model.objects.exclude(pk=run.pk).get(lock_key=lock)
        assert more.job_id == (f"b{number}" if answer.created else f"a{number}~2")
        assert more.state == "queued"


def test_a_claim_waits_for_the_commit_that_asks_a_queued_holder_for_a_rerun() -> None:
    """The pass that the claim begins must see what the caller has changed."""
    run, order = queued(MailRun, lock_key="K"), Order.objects.create(amount=1)
    begun, free = threading.Event(), threading.Event()

    def caller() -> Any:
        with transaction.atomic():
            Order.objects.filter(pk=order.pk).update(amount=2)
            answer = MailRun.objects.enqueue(lock_key="K", if_locked="rerun")
            begun.set()
            assert free.wait(30)
        return answer

    def worker() -> Any:
        assert begun.wait(30)
        claim(run)
        return Order.objects.get(pk=order.pk).amount

    def release() -> None:
        eventually(lambda: waiting_backends() == 1, 30)
        free.set()

    answer, amount, _ = values(race(caller, worker, release))
    assert answer.rerun
    assert amount == 2
    assert row_of(run)["rerun_requested"] is False


def test_a_rerun_asked_of_a_holder_that_ended_meanwhile_makes_a_run() -> None:
    run = claimed(MailRun, job_id="a", lock_key="K")
    begun, free = threading.Event(), threading.Event()

    def settle() -> None:
        with transaction.atomic():
            transitions.succeed(run, {})
            begun.set()
            assert free.wait(30)

    def caller() -> Any:
        assert begun.wait(30)
        return MailRun.objects.enqueue(job_id="b", lock_key="K", if_locked="rerun")

    def release() -> None:
        eventually(lambda: waiting_backends() == 1, 30)
        free.set()

    _, answer, _ = values(race(settle, caller, release))
    assert answer.created
    assert answer.run.job_id == "b"


def test_no_constraint_of_ours_comes_out_however_unlucky_the_rounds(monkeypatch: Any) -> None:
    """The holder is there for each insert and gone for each look."""
    holder = queued(MailRun, job_id="a")
    looks = []

    def gone(wanted: Any) -> None:
        looks.append(1)
        if len(looks) == 2 * module.ROUNDS:
            MailRun.objects.filter(pk=holder.pk).delete()

    monkeypatch.setattr(module, "_who_stands_in_the_way", gone)
    monkeypatch.setattr(module, "_known_by_hint", lambda wanted: None)
    with transaction.atomic():
        answer = MailRun.objects.enqueue(job_id="a")
        Order.objects.create()
    assert answer.created
    assert answer.run.pk != holder.pk
    assert Order.objects.exists()


def test_the_plain_insert_is_sent_like_any_other(monkeypatch: Any, redis_server: Any) -> None:
    monkeypatch.setattr(module, "ROUNDS", 0)
    answer = MailRun.objects.enqueue(job_id="a")
    assert answer.created
    assert messages(redis_server) == [f"lab-mailrun-{answer.run.pk}-0"]
    assert again(answer.run).queued_at == answer.run.queued_at


def test_enqueue_from_many_threads_of_different_runs_gives_each_its_message(
    redis_server: Any,
) -> None:
    def enqueue(n: int) -> Callable[[], Any]:
        return lambda: [queued(MailRun, job_id=f"{n}-{i}") for i in range(5)]

    values(race(*[enqueue(n) for n in range(20)]))
    assert len(messages(redis_server)) == len(set(messages(redis_server))) == 100
    assert not connection.in_atomic_block


def _together(caller: Callable[[], Any], number: int) -> list[Any]:
    return values(race(*[caller] * number))
