"""Real connections that meet at a barrier: the moves of one row against each other."""

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from runcontract.exceptions import LeaseLost
from runcontract.lifecycle import statements, transitions
from runcontract.lifecycle.database import execute
from tests.lab.models import AgainRun, MailRun, Order, PassRun, SyncRun
from tests.support.race import race, values
from tests.support.runs import (
    again,
    an_error,
    change,
    claimed,
    failed,
    lost_error,
    queued,
    reap,
    row_of,
    sql,
    stale,
    table,
)

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server"),
]


def beat(*runs: Any) -> set[tuple[Any, int]]:
    """One heartbeat of these runs; what got through."""
    of = table(type(runs[0]))
    params = [[run.pk for run in runs], [run.lease for run in runs]]
    return {(pk, lease) for pk, lease in execute(of.alias, statements.beat(of), params)}


def attempt(move: Callable[[], Any]) -> Callable[[], str]:
    """Whether a move was made or refused."""

    def racer() -> str:
        try:
            move()
        except LeaseLost:
            return "refused"
        return "done"

    return racer


def redo_of(model: Any, pk: Any) -> Callable[[], Any]:
    """Each racer has read the row for itself, as each request does."""
    return lambda: model.objects.get(pk=pk).redo()


def reap_only(run: Any) -> None:
    transitions.reap_silent(table(MailRun), run.pk, run.lease, run.heartbeat_at, lost_error())


@pytest.mark.parametrize("claims", [2, 20])
def test_one_of_several_claims_gets_the_run(claims: int) -> None:
    for _ in range(3 if claims > 2 else 15):
        run = queued(MailRun)
        found = values(
            race(*[
                partial(transitions.claim, table(MailRun), run.pk, 0, f"worker {n}")
                for n in range(claims)
            ])
        )  # fmt: skip
        (winner,) = [taken for taken in found if taken is not None]
        row = row_of(run)
        assert (row["worker"], row["lease"], row["attempts"]) == (winner.worker, 1, 1)


def test_claims_from_the_journal_never_share_a_run() -> None:
    MailRun.objects.bulk_enqueue({} for _ in range(60))

    def worker() -> list[int]:
        taken = []
        while run := transitions.claim_waiting(table(MailRun), ["default"], "w"):
            taken.append(run.pk)
        return taken

    found = [pk for part in values(race(*[worker] * 6)) for pk in part]
    assert len(found) == len(set(found)) == 60


def test_a_claim_by_message_and_one_from_the_journal_never_both_get_it() -> None:
    for _ in range(10):
        run = queued(MailRun)
        one, two = values(
            race(
                partial(transitions.claim, table(MailRun), run.pk, 0, "by message"),
                partial(transitions.claim_waiting, table(MailRun), ["default"], "by journal"),
            )
        )
        assert (one is None) != (two is None)


def test_a_heartbeat_in_the_same_moment_beats_the_reaper_or_is_told_so() -> None:
    for _ in range(12):
        run = stale(MailRun)
        beaten, reaped = values(
            race(
                partial(beat, run),
                attempt(partial(reap, run)),
            )
        )
        assert bool(beaten) is (reaped == "refused")
        assert row_of(run)["state"] == ("running" if beaten else "failed")


def test_a_settle_in_the_same_moment_beats_the_reaper_or_is_refused() -> None:
    ends = set()
    for _ in range(12):
        run = stale(MailRun)
        outcome = values(
            race(
                attempt(partial(transitions.succeed, run, {})),
                attempt(
                    partial(
                        transitions.reap_silent,
                        table(MailRun),
                        run.pk,
                        run.lease,
                        run.heartbeat_at,
                        lost_error(),
                    )
                ),
            )
        )
        assert sorted(outcome) == ["done", "refused"]
        ends.add(row_of(run)["state"])
        assert row_of(run)["state"] == ("succeeded" if outcome[0] == "done" else "failed")
    assert ends <= {"succeeded", "failed"}


def test_two_reapers_reap_once() -> None:
    for _ in range(10):
        run = stale(AgainRun)
        outcome = values(race(*[attempt(partial(reap, run))] * 4))
        assert outcome.count("done") == 1
        stored = again(run)
        assert (stored.state, stored.lease, stored.stats["lost"]) == ("queued", 2, 1)


@pytest.mark.parametrize("model", [MailRun, PassRun])
def test_redo_pressed_twice_at_once_queues_one(model: Any) -> None:
    for number in range(10):
        run = failed(model, job_id=f"{number}")
        answers = values(race(*[redo_of(model, run.pk)] * 3))
        assert sum(answer.created for answer in answers) == 1
        reasons = {answer.reason for answer in answers if not answer}
        assert reasons <= {"not failed", "duplicate"}
        assert model.objects.filter(job_id=f"{number}", state="queued").count() == 1


def test_redo_of_two_runs_with_one_lock_queues_one() -> None:
    for number in range(10):
        runs = [failed(MailRun, lock_key=f"K{number}") for _ in range(2)]
        answers = values(race(*[run.redo for run in runs]))
        assert sum(answer.created for answer in answers) == 1
        assert {answer.reason for answer in answers} == {"", "locked"}


def test_a_cancel_in_the_moment_of_the_claim_is_one_or_the_other() -> None:
    for _ in range(12):
        run = queued(MailRun)
        said, taken = values(
            race(
                run.cancel,
                partial(transitions.claim, table(MailRun), run.pk, 0, "w"),
            )
        )
        row = row_of(run)
        if taken is None:
            assert (said, row["state"], row["failure"]) == ("cancelled", "failed", "cancelled")
        else:
            assert (said, row["state"], row["cancel_requested"]) == ("asked", "running", True)


def test_a_cancel_in_the_moment_of_a_deferral_is_never_lost() -> None:
    for _ in range(12):
        run = claimed(MailRun)
        said, deferred = values(
            race(
                again(run).cancel,
                partial(transitions.defer, run, timedelta(hours=1), an_error(), {}),
            )
        )
        row = row_of(run)
        if deferred:
            assert (said, row["state"]) == ("cancelled", "failed")
        else:
            assert (said, row["state"], row["cancel_requested"]) == ("asked", "running", True)


def test_a_heartbeat_gets_through_while_a_job_refers_to_its_own_run() -> None:
    """The rows that its open transaction inserts hold a key share lock on the run's."""
    sql("CREATE TABLE part (run_id bigint REFERENCES lab_syncrun (id) ON DELETE CASCADE)")
    run = claimed(SyncRun)
    begun, free = threading.Event(), threading.Event()

    def job() -> None:
        with transaction.atomic():
            sql("INSERT INTO part VALUES (%s)", run.pk)
            begun.set()
            assert free.wait(30)

    def supervisor() -> Any:
        assert begun.wait(30)
        try:
            return beat(run)
        finally:
            free.set()

    try:
        _, beaten = values(race(job, supervisor))
    finally:
        sql("DROP TABLE part")
    assert beaten == {(run.pk, 1)}


def test_a_row_that_its_job_has_locked_is_skipped_by_pulse_and_reaper_alike() -> None:
    """Nobody waits for it, the other rows have their pulse, and it is not lost."""
    run, other = stale(MailRun), claimed(MailRun)
    begun, free = threading.Event(), threading.Event()

    def job() -> None:
        with transaction.atomic():
            run.note = "in my own transaction"
            run.save()
            begun.set()
            assert free.wait(30)

    def others() -> Any:
        assert begun.wait(30)
        try:
            return beat(run, other), attempt(lambda: reap(run))()
        finally:
            free.set()

    _, (beaten, reaped) = values(race(job, others))
    assert beaten == {(other.pk, 1)}
    assert reaped == "refused"
    assert row_of(run)["state"] == "running"
    assert beat(run) == {(run.pk, 1)}


def test_pulses_and_settles_of_many_runs_never_deadlock() -> None:
    runs = [claimed(MailRun, hook="keep") for _ in range(40)]
    stop = threading.Event()

    def supervisor() -> int:
        rounds = 0
        while not stop.is_set():
            beat(*runs)
            beat(*reversed(runs))
            rounds += 1
        return rounds

    def settle() -> None:
        try:
            for number, run in enumerate(runs):
                if number % 2:
                    transitions.succeed(run, {})
                else:
                    transitions.fail(run, "permanent", an_error(), {})  # type: ignore[arg-type]
        finally:
            stop.set()

    rounds, _ = values(race(supervisor, settle))
    assert rounds
    assert not MailRun.objects.filter(state="running").exists()
    assert Order.objects.count() == 20
    assert beat(*runs) == set()


def test_a_pulse_is_written_only_under_the_lease_that_is_held() -> None:
    run = claimed(MailRun)
    change(run, "heartbeat_at = now() - interval '1 hour'")
    before = row_of(run)
    run.lease += 1
    assert beat(run) == set()
    run.lease -= 1
    assert row_of(run) == before
    assert beat(run) == {(run.pk, 1)}
    after = row_of(run)
    assert after.pop("heartbeat_at") > before.pop("heartbeat_at")
    assert after == before
