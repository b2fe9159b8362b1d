"""The moves of a worker: what each writes, and that each guard refuses and changes nothing."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import F

from runcontract import signals
from runcontract.contract.states import Failure
from runcontract.exceptions import LeaseLost
from runcontract.lifecycle import hooks, transitions
from tests.lab.models import AgainRun, MailRun, Order, PassRun, SyncRun, UuidRun
from tests.support.runs import (
    WORKER,
    again,
    an_error,
    change,
    claim,
    claimed,
    failed,
    lost_error,
    messages,
    own_unique,
    queued,
    reap,
    refused,
    rolled_back,
    row_of,
    sql,
    stale,
    succeeded,
    table,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_server")]

committed = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)

Move = Callable[[Any], Any]
MOVES: dict[str, Move] = {
    "note": lambda run: transitions.note(run, {"progress": {"done": 1}}),
    "next attempt": lambda run: transitions.next_attempt(run, 1, an_error(), {}),
    "succeed": lambda run: transitions.succeed(run, {}),
    "fail": lambda run: transitions.fail(run, Failure.PERMANENT, an_error(), {}),
    "defer": lambda run: transitions.defer(run, HOUR, an_error(), {}),
    "reap": lambda run: transitions.reap(table(type(run)), run.pk, run.lease, lost_error()),
    "reap silent": lambda run: transitions.reap_silent(
        table(type(run)), run.pk, run.lease, run.heartbeat_at, lost_error()
    ),
}


@contextmanager
def told(signal: Any, sender: Any) -> Iterator[list[Any]]:
    """What the receivers of a signal are told."""
    seen: list[Any] = []

    def receiver(run: Any, **data: Any) -> None:
        seen.append((run.pk, data.get("error")))

    signal.connect(receiver, sender=sender)
    try:
        yield seen
    finally:
        signal.disconnect(receiver, sender=sender)


def counted(run: Any, name: str) -> int:
    return int(again(run).stats.get(name, 0))


def follow_up(run: Any) -> Any:
    """The run that came of a rerun."""
    return type(run).objects.exclude(pk=run.pk).get()


# The guards


@pytest.mark.parametrize("name", MOVES)
def test_a_late_worker_cannot_write_under_an_older_lease(name: str) -> None:
    run = claimed(MailRun)
    change(run, "lease = lease + 1")
    refused(lambda: MOVES[name](run), run, LeaseLost)


@pytest.mark.parametrize("name", MOVES)
def test_a_late_worker_cannot_overwrite_a_reaped_run(name: str) -> None:
    run = claimed(MailRun)
    reap(change(run, "heartbeat_at = now() - interval '1 hour'"))
    refused(lambda: MOVES[name](run), run, LeaseLost)


@pytest.mark.parametrize("name", MOVES)
def test_a_late_worker_cannot_touch_a_run_that_was_claimed_again(name: str) -> None:
    run = claimed(MailRun)
    transitions.give_back(table(MailRun), run.pk, run.lease)
    claim(again(run), "another")
    refused(lambda: MOVES[name](run), run, LeaseLost)


@pytest.mark.parametrize("name", MOVES)
def test_a_deleted_run_refuses_every_move(name: str) -> None:
    run = claimed(MailRun)
    MailRun.objects.filter(pk=run.pk).delete()
    with pytest.raises(LeaseLost, match=f"lab.mailrun {run.pk} is no longer held under lease 1"):
        MOVES[name](run)


@pytest.mark.parametrize("name", ["note", "next attempt", "reap", "reap silent"])
def test_a_run_that_has_ended_refuses_what_only_a_running_one_has(name: str) -> None:
    run = claimed(MailRun)
    transitions.succeed(run, {})
    refused(lambda: MOVES[name](run), run, LeaseLost)


@pytest.mark.parametrize("name", ["succeed", "fail", "defer"])
def test_a_reply_lost_after_the_commit_is_asked_about(name: str) -> None:
    """The move is made twice, for the worker never heard of the first."""
    run = claimed(MailRun)
    worker_has = again(run)
    MOVES[name](run)
    before = row_of(run)
    assert MOVES[name](worker_has) in (None, True)
    assert row_of(run) == before
    assert worker_has.state == before["state"] or name == "fail"


@committed
def test_a_failure_is_announced_though_its_reply_was_lost() -> None:
    run = claimed(MailRun)
    worker_has = again(run)
    transitions.fail(run, Failure.PERMANENT, an_error(), {})
    with told(signals.run_failed, MailRun) as seen:
        transitions.fail(worker_has, Failure.PERMANENT, an_error(), {})
    assert [pk for pk, _ in seen] == [run.pk]


# Claim


def test_a_claim_takes_the_run_and_counts_the_attempt() -> None:
    run = change(queued(MailRun), "next_retry_at = now() - interval '1 s', rerun_requested = true")
    taken = claim(run, "me")
    row = row_of(run)
    assert (row["state"], row["worker"], row["lease"], row["attempts"]) == ("running", "me", 1, 1)
    assert row["heartbeat_at"] is not None
    assert row["started_at"] is not None
    assert row["next_retry_at"] is None
    assert row["rerun_requested"] is False
    assert (taken.lease, taken.attempts, taken.state) == (1, 1, "running")


def test_a_plain_and_a_uuid_run_are_claimed_alike() -> None:
    assert claimed(PassRun).lease == 1
    assert claimed(UuidRun).attempts == 1


@pytest.mark.parametrize(
    "what",
    ["lease = lease + 1", "next_retry_at = now() + interval '1 minute'"],
)
def test_a_claim_is_refused_when_the_address_is_old_or_the_run_not_due(what: str) -> None:
    run = queued(MailRun)
    change(run, what)
    before = row_of(run)
    assert transitions.claim(table(MailRun), run.pk, 0, WORKER) is None
    assert row_of(run) == before


@pytest.mark.parametrize("holder", [claimed, succeeded, failed])
def test_only_a_queued_run_is_claimed(holder: Callable[..., Any]) -> None:
    run = holder(MailRun)
    before = row_of(run)
    for lease in range(3):
        assert transitions.claim(table(MailRun), run.pk, lease, WORKER) is None
    assert row_of(run) == before


def test_an_unknown_key_is_claimed_by_nobody() -> None:
    assert transitions.claim(table(MailRun), 10**9, 0, WORKER) is None


def test_the_journal_gives_the_first_lane_s_longest_waiting_run() -> None:
    for lane in ("default", "bulk"):
        for number in (2, 1, 3):
            run = queued(MailRun, job_id=f"{lane} {number}", lane=lane)
            change(run, "dispatched_at = now() - %s * interval '1 minute'", 10 - number)
    change(queued(MailRun, job_id="later"), "next_retry_at = now() + interval '1 minute'")
    queued(MailRun, job_id="other", lane="interactive")
    taken = []
    while run := transitions.claim_waiting(table(MailRun), ["bulk", "default"], WORKER):
        taken.append(run.job_id)
    assert taken == [f"{lane} {number}" for lane in ("bulk", "default") for number in (1, 2, 3)]


def test_what_was_never_sent_comes_last_from_the_journal() -> None:
    change(queued(PassRun, job_id="unsent"), "dispatched_at = NULL")
    queued(PassRun, job_id="sent")
    lanes = ["default"]
    first = transitions.claim_waiting(table(PassRun), lanes, WORKER)
    second = transitions.claim_waiting(table(PassRun), lanes, WORKER)
    assert first is not None
    assert second is not None
    assert [first.job_id, second.job_id] == ["sent", "unsent"]


def test_a_claim_without_a_reply_is_found_under_the_workers_name() -> None:
    run = claimed(MailRun, worker="me")
    claimed(MailRun, worker="other")
    assert [found.pk for found in transitions.claimed_by(table(MailRun), "me")] == [run.pk]
    assert transitions.claimed_by(table(MailRun), "nobody") == []


# While it runs


def test_a_note_is_merged_into_the_stats_and_tells_of_a_cancel() -> None:
    run = change(claimed(MailRun), "stats = %s", '{"lost": 1}')
    assert transitions.note(run, {"progress": {"done": 1}}) is False
    assert row_of(run)["stats"] == '{"lost": 1, "progress": {"done": 1}}'
    run.cancel()
    assert transitions.note(run, {}) is True


@pytest.mark.parametrize("model", [MailRun, PassRun])
def test_the_next_attempt_is_counted_before_it_begins(model: Any) -> None:
    run = claimed(model)
    assert transitions.attempts_of(table(model), again(run)) == 1
    assert transitions.next_attempt(run, 1, an_error("first"), {"progress": {"done": 1}}) is True
    stored = again(run)
    assert transitions.attempts_of(table(model), stored) == 2
    assert stored.last_error["message"] == "first"
    assert stored.last_error["at"]
    assert stored.fingerprint
    assert stored.stats["progress"] == {"done": 1}
    assert (stored.state, stored.lease) == ("running", 1)
    assert transitions.next_attempt(run, 2, an_error("second"), {}) is True
    assert again(run).last_error["history"][0]["message"] == "first"


@pytest.mark.parametrize("model", [MailRun, PassRun])
def test_a_next_attempt_whose_reply_was_lost_is_counted_once(model: Any) -> None:
    run = claimed(model)
    worker_has = again(run)
    transitions.next_attempt(run, 1, an_error(), {})
    assert transitions.next_attempt(worker_has, 1, an_error(), {}) is True
    assert transitions.attempts_of(table(model), again(run)) == 2


def test_no_attempt_begins_on_a_count_that_is_not_ours() -> None:
    run = change(claimed(MailRun), "attempts = 4")
    refused(lambda: transitions.next_attempt(run, 1, an_error(), {}), run, LeaseLost)


@pytest.mark.parametrize("model", [MailRun, PassRun])
def test_no_attempt_begins_after_a_cancel_was_asked(model: Any) -> None:
    run = claimed(model)
    run.cancel()
    before = row_of(run)
    assert transitions.next_attempt(run, 1, an_error(), {}) is False
    assert row_of(run) == before


# Settle


def test_success_begins_the_window_and_keeps_the_steps() -> None:
    run = claimed(MailRun)
    transitions.succeed(run, {"steps": [{"name": "fetch"}]})
    stored = again(run)
    assert (stored.state, stored.failure, stored.lease) == ("succeeded", "", 1)
    assert stored.held_until - stored.finished_at == pytest.approx(
        timedelta(hours=24), abs=timedelta(seconds=1)
    )
    assert stored.stats["steps"] == [{"name": "fetch"}]
    assert run.state == "succeeded"


def test_a_failure_says_why_and_begins_its_own_window() -> None:
    run = claimed(MailRun)
    steps = {"steps": [{"name": "fetch", "failed": True}]}
    transitions.fail(run, Failure.EXHAUSTED, an_error("a 7", attempt=3), steps)
    stored = again(run)
    assert (stored.state, stored.failure) == ("failed", "exhausted")
    assert stored.held_until - stored.finished_at == pytest.approx(
        timedelta(minutes=1), abs=timedelta(seconds=1)
    )
    assert stored.last_error["message"] == "a 7"
    assert stored.last_error["attempt"] == 3
    assert stored.last_error["steps"] == steps["steps"]
    assert len(stored.fingerprint) == 12
    assert stored.rerun_requested is False


@committed
def test_each_end_is_announced_after_its_commit_and_only_then() -> None:
    with told(signals.run_succeeded, MailRun) as successes:
        run = claimed(MailRun)
        with transaction.atomic():
            transitions.succeed(run, {})
            assert successes == []
        assert [pk for pk, _ in successes] == [run.pk]
    with told(signals.run_failed, MailRun) as failures:
        run = failed(MailRun)
        assert failures == [(run.pk, an_error())]
    with told(signals.run_deferred, MailRun) as deferrals:
        run = claimed(MailRun)
        transitions.defer(run, HOUR, an_error(), {})
        assert [pk for pk, _ in deferrals] == [run.pk]


# Defer and give back


def test_a_deferred_run_waits_keeps_its_lock_and_its_attempt() -> None:
    run = claimed(MailRun, lock_key="K")
    assert transitions.defer(run, HOUR, an_error("busy"), {"progress": {"done": 1}}) is True
    row = row_of(run)
    assert (row["state"], row["attempts"], row["lease"]) == ("queued", 1, 1)
    assert (row["worker"], row["heartbeat_at"], row["dispatched_at"]) == ("", None, None)
    assert sql("SELECT next_retry_at - now() > '59 minutes' FROM lab_mailrun") == [(True,)]
    assert counted(run, "deferred") == 1
    assert again(run).last_error["message"] == "busy"
    assert MailRun.objects.enqueue(lock_key="K").reason == "locked"


def test_a_run_whose_cancel_was_asked_is_not_deferred() -> None:
    run = claimed(MailRun)
    run.cancel()
    before = row_of(run)
    assert transitions.defer(run, HOUR, an_error(), {}) is False
    assert row_of(run) == before


@committed
def test_a_run_given_back_is_due_at_once_its_attempt_refunded(redis_server: Any) -> None:
    run = claimed(MailRun)
    redis_server.flushall()
    assert transitions.give_back(table(MailRun), run.pk, run.lease) is True
    row = row_of(run)
    assert (row["state"], row["attempts"], row["lease"]) == ("queued", 0, 2)
    assert (row["worker"], row["heartbeat_at"], row["next_retry_at"]) == ("", None, None)
    assert row["dispatched_at"] is not None
    assert counted(run, "given_back") == 1
    assert messages(redis_server) == [f"lab-mailrun-{run.pk}-2"]


def test_a_plain_run_is_given_back_with_the_attempt_it_was_at() -> None:
    run = claimed(PassRun)
    transitions.next_attempt(run, 1, an_error(), {})
    assert transitions.give_back(table(PassRun), run.pk, run.lease) is True
    assert transitions.attempts_of(table(PassRun), claim(again(run))) == 2


@committed
def test_nothing_is_given_back_that_is_not_ours_or_is_to_be_cancelled(redis_server: Any) -> None:
    run = claimed(MailRun)
    redis_server.flushall()
    before = row_of(run)
    assert transitions.give_back(table(MailRun), run.pk, run.lease + 1) is False
    assert row_of(run) == before
    run.cancel()
    assert transitions.give_back(table(MailRun), run.pk, run.lease) is False
    assert row_of(run) == before | {"cancel_requested": True}
    for ended in (succeeded(MailRun), queued(MailRun)):
        assert transitions.give_back(table(MailRun), ended.pk, ended.lease) is False
    assert f"lab-mailrun-{run.pk}-2" not in messages(redis_server)


@committed
def test_an_address_that_is_called_back_is_void(redis_server: Any) -> None:
    run = queued(MailRun)
    assert transitions.call_back(table(MailRun), run.pk, 0) is True
    assert transitions.claim(table(MailRun), run.pk, 0, WORKER) is None
    assert messages(redis_server)[-1] == f"lab-mailrun-{run.pk}-1"
    assert transitions.call_back(table(MailRun), run.pk, 0) is False
    claim(again(run))
    assert transitions.call_back(table(MailRun), run.pk, 2) is False


# The rerun


@pytest.mark.parametrize("move", ["succeed", "fail", "reap"])
def test_an_end_honours_the_rerun_that_was_asked(move: str) -> None:
    run = claimed(MailRun, job_id="a", lock_key="K", lane="bulk", note="mine", args={"n": 1})
    MailRun.objects.enqueue(lock_key="K", if_locked="rerun")
    MOVES[move](run)
    more = follow_up(run)
    assert again(run).state in ("succeeded", "failed")
    assert (more.job_id, more.lock_key, more.lane) == ("a~2", "K", "bulk")
    assert (more.note, more.args) == ("mine", {"n": 1})
    assert (more.state, more.lease, more.attempts) == ("queued", 0, 0)


@committed
def test_the_follow_up_is_made_and_sent_with_the_settle_or_not_at_all(redis_server: Any) -> None:
    run = claimed(MailRun, job_id="a", lock_key="K")
    MailRun.objects.enqueue(lock_key="K", if_locked="rerun")
    redis_server.flushall()
    with rolled_back():
        transitions.succeed(again(run), {})
    assert row_of(run)["state"] == "running"
    assert MailRun.objects.count() == 1
    assert messages(redis_server) == []
    transitions.succeed(run, {})
    assert messages(redis_server) == [f"lab-mailrun-{follow_up(run).pk}-0"]


def test_follow_ups_are_numbered_on() -> None:
    for number, name in enumerate(["a", "a~2", "a~3"]):
        run = (
            claim(MailRun.objects.get(job_id=name))
            if number
            else claimed(MailRun, job_id="a", lock_key="K")
        )
        MailRun.objects.enqueue(lock_key="K", if_locked="rerun")
        transitions.succeed(run, {})
    assert MailRun.objects.get(state="queued").job_id == "a~4"


def test_a_number_that_is_taken_is_left_out_and_a_long_name_is_cut() -> None:
    queued(MailRun, job_id="a~2")
    long = "z" * 255
    for job_id, expected in [("a", "a~3"), (long, "z" * 253 + "~2")]:
        run = claimed(MailRun, job_id=job_id, lock_key="K")
        MailRun.objects.enqueue(lock_key="K", if_locked="rerun")
        transitions.succeed(run, {})
        more = MailRun.objects.get(job_id=expected)
        transitions.succeed(claim(more), {})


def test_the_follow_up_is_a_copy_of_the_row_not_of_what_the_job_made_of_it() -> None:
    run = claimed(MailRun, job_id="a", lock_key="K", note="mine")
    MailRun.objects.enqueue(lock_key="K", if_locked="rerun")
    run.progress, run.note, run.lane, run.job_id = F("progress") + 1, "changed", "gone", "x"
    transitions.succeed(run, {})
    more = MailRun.objects.get(state="queued")
    assert (more.job_id, more.note, more.lane, more.progress) == ("a~2", "mine", "default", 0)


@pytest.mark.parametrize("model", [MailRun, PassRun])
def test_a_cancel_discards_the_rerun_and_says_so(model: Any) -> None:
    running = claimed(model, job_id="a", lock_key="K")
    model.objects.enqueue(lock_key="K", if_locked="rerun")
    transitions.fail(running, Failure.CANCELLED, an_error(), {})
    assert again(running).last_error["rerun"] == "discarded by the cancel"
    waiting = queued(model, job_id="b", lock_key="K")
    model.objects.enqueue(lock_key="K", if_locked="rerun")
    assert waiting.cancel() == "cancelled"
    assert again(waiting).last_error["rerun"] == "discarded by the cancel"
    assert model.objects.count() == 2


@committed
@pytest.mark.parametrize("move", ["succeed", "fail"])
def test_a_constraint_of_the_consumers_own_refuses_the_rerun_and_it_is_said(move: str) -> None:
    with own_unique(MailRun, "note"):
        run = claimed(MailRun, job_id="a", lock_key="K", note="one")
        MailRun.objects.enqueue(lock_key="K", if_locked="rerun", note="two")
        MOVES[move](run)
        assert MailRun.objects.count() == 1
        assert "unique constraint" in again(run).last_error["rerun"]


@committed
def test_a_rerun_that_a_check_refuses_does_not_stop_the_settle() -> None:
    run = claimed(MailRun, job_id="a", lock_key="K", note="bad")
    MailRun.objects.enqueue(lock_key="K", if_locked="rerun")
    sql("ALTER TABLE lab_mailrun ADD CONSTRAINT own CHECK (job_id NOT LIKE '%%~2')")
    try:
        transitions.succeed(run, {})
    finally:
        sql("ALTER TABLE lab_mailrun DROP CONSTRAINT own")
    stored = again(run)
    assert stored.state == "succeeded"
    assert stored.last_error == {"rerun": "refused by the database: IntegrityError"}


@committed
def test_a_database_that_fails_at_the_rerun_undoes_the_settle() -> None:
    """It is tried again, and then the rerun is not lost."""
    run = claimed(MailRun, job_id="a", lock_key="K")
    MailRun.objects.enqueue(lock_key="K", if_locked="rerun")
    sql(
        "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION USING ERRCODE = '40P01'; END$$"
    )
    sql("CREATE TRIGGER own BEFORE INSERT ON lab_mailrun EXECUTE FUNCTION broken()")
    try:
        refused(lambda: transitions.succeed(again(run), {}), run, OperationalError)
    finally:
        sql("DROP TRIGGER own ON lab_mailrun")
        sql("DROP FUNCTION broken")
    transitions.succeed(run, {})
    assert follow_up(run).job_id == "a~2"


def test_a_rerun_is_left_to_the_run_that_the_hook_has_enqueued(monkeypatch: Any) -> None:
    def on_failed(self: Any, error: Any) -> None:
        MailRun.objects.enqueue(job_id="by the hook", lock_key="K")

    monkeypatch.setattr(MailRun, "on_failed", on_failed)
    run = claimed(MailRun, job_id="a", lock_key="K")
    MailRun.objects.enqueue(lock_key="K", if_locked="rerun")
    transitions.fail(run, Failure.PERMANENT, an_error(), {})
    assert follow_up(run).job_id == "by the hook"
    assert again(run).last_error["rerun"] == "left to by the hook, which has the lock already"


# on_failed


@committed
def test_on_failed_is_part_of_the_settle() -> None:
    run = claimed(MailRun, job_id="a", hook="keep")
    with rolled_back():
        transitions.fail(again(run), Failure.PERMANENT, an_error(), {})
        assert Order.objects.count() == 1
    assert row_of(run)["state"] == "running"
    assert not Order.objects.exists()
    transitions.fail(run, Failure.PERMANENT, an_error(), {})
    assert Order.objects.get().name == "failed a"


@pytest.mark.parametrize("hook", ["broken", "broken_sql"])
@pytest.mark.parametrize("move", ["fail", "reap", "reap silent"])
def test_on_failed_that_raises_cannot_stop_the_settle(hook: str, move: str) -> None:
    run = claimed(MailRun, hook=hook)
    MOVES[move](run)
    stored = again(run)
    assert stored.state == "failed"
    assert stored.last_error["message"]
    assert stored.last_error["on_failed"].startswith(
        "RuntimeError: on_failed is broken" if hook == "broken" else "django.db.utils.DataError"
    )
    Order.objects.create()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_on_failed_that_raises_more_than_an_exception_cannot_either(
    monkeypatch: Any, error: BaseException
) -> None:
    def on_failed(self: Any, told: Any) -> None:
        raise error

    monkeypatch.setattr(MailRun, "on_failed", on_failed)
    run = failed(MailRun)
    assert run.state == "failed"
    assert type(error).__name__ in run.last_error["on_failed"]


@committed
def test_on_failed_that_waits_in_the_database_is_ended(monkeypatch: Any) -> None:
    monkeypatch.setattr(hooks, "STATEMENT_MS", "200")
    run = failed(MailRun, hook="endless")
    assert run.state == "failed"
    assert "timeout" in run.last_error["on_failed"]


@committed
@pytest.mark.parametrize("hook", ["keep", "endless"])
def test_the_limit_of_the_hook_is_not_left_in_the_callers_transaction(
    monkeypatch: Any, hook: str
) -> None:
    monkeypatch.setattr(hooks, "STATEMENT_MS", "200")
    run = queued(MailRun, hook=hook)
    with transaction.atomic():
        sql("SET LOCAL statement_timeout = '7s'")
        assert run.cancel() == "cancelled"
        assert sql("SHOW statement_timeout") == [("7s",)]
    assert sql("SHOW statement_timeout") == [("0",)]


def test_on_failed_may_delete_its_run_and_its_rerun_still_comes(monkeypatch: Any) -> None:
    monkeypatch.setattr(MailRun, "on_failed", lambda self, error: self.delete())
    run = claimed(MailRun, job_id="a", lock_key="K")
    MailRun.objects.enqueue(lock_key="K", if_locked="rerun")
    transitions.fail(run, Failure.PERMANENT, an_error(), {})
    assert [more.job_id for more in MailRun.objects.all()] == ["a~2"]


def test_a_hook_that_is_left_out_is_said() -> None:
    run = claimed(MailRun, hook="keep")
    transitions.fail(run, Failure.PERMANENT, an_error(), {}, hook=False)
    assert not Order.objects.exists()
    assert again(run).last_error["on_failed"].startswith("not called")
    run = stale(MailRun, hook="keep")
    assert reap(run, hook=False).last_error["on_failed"].startswith("not called")


def test_an_error_of_the_hook_is_stored_masked_and_bounded(monkeypatch: Any, caplog: Any) -> None:
    def on_failed(self: Any, told: Any) -> None:
        raise ValueError("\x00\ud800" + "x" * 100_000)

    monkeypatch.setattr(MailRun, "on_failed", on_failed)
    with caplog.at_level(logging.ERROR, "runcontract.hooks"):
        said = failed(MailRun).last_error["on_failed"]
    assert len(said) <= 2000
    assert "ValueError" in caplog.text


# Reap


def test_a_silent_run_is_failed_as_stale_and_fenced_off() -> None:
    run = stale(MailRun, hook="keep", lock_key="K")
    reaped = reap(run)
    assert (reaped.state, reaped.failure, reaped.lease) == ("failed", "stale", run.lease + 1)
    assert reaped.held_until is not None
    assert reaped.last_error["type"] == "WorkerLost"
    assert reaped.last_error["failure"] == "stale"
    assert counted(run, "lost") == 1
    assert Order.objects.count() == 1
    assert MailRun.objects.enqueue(lock_key="K")


def test_a_run_that_beats_meanwhile_is_not_reaped() -> None:
    run = stale(MailRun)
    change(run, "heartbeat_at = heartbeat_at + interval '1 microsecond'")
    refused(lambda: reap(run), run, LeaseLost)


def test_a_lost_run_whose_cancel_was_asked_is_cancelled() -> None:
    run = stale(AgainRun)
    run.cancel()
    reaped = reap(run)
    assert (reaped.state, reaped.failure) == ("failed", "cancelled")
    assert reaped.last_error["failure"] == "cancelled"


def test_a_run_that_may_is_queued_again_until_too_many_workers_were_lost() -> None:
    run = stale(AgainRun)
    for lost in (1, 2):
        reaped = reap(run)
        assert (reaped.state, reaped.lease) == ("queued", 2 * lost)
        assert reaped.next_retry_at is not None
        assert reaped.dispatched_at is None
        assert (reaped.worker, reaped.heartbeat_at) == ("", None)
        assert reaped.last_error["failure"] == ""
        assert reaped.last_error["attempt"] == lost
        assert counted(run, "lost") == lost
        run = claim(change(reaped, "next_retry_at = now()"))
    reaped = reap(run)
    assert (reaped.state, reaped.failure, reaped.attempts) == ("failed", "stale", 3)
    assert counted(run, "lost") == 3


def test_a_run_without_attempts_left_is_not_queued_again() -> None:
    run = change(stale(AgainRun), "attempts = 5")
    assert reap(run).failure == "stale"


def test_a_plain_run_that_may_is_due_at_once(monkeypatch: Any) -> None:
    monkeypatch.setattr(PassRun, "policy", AgainRun.policy)
    reaped = reap(stale(PassRun))
    assert (reaped.state, reaped.dispatched_at) == ("queued", None)
    assert claim(reaped).lease == 3


@pytest.mark.parametrize(("attempts", "state"), [(1, "queued"), (5, "failed")])
def test_a_run_killed_at_its_timeout_is_repeated_while_attempts_are_left(
    attempts: int, state: str
) -> None:
    run = change(claimed(MailRun), "attempts = %s", attempts)
    transitions.reap(
        table(MailRun), run.pk, run.lease, an_error(failure="timeout"), kind=Failure.TIMEOUT
    )
    stored = again(run)
    assert (stored.state, stored.failure) == (state, "timeout" if state == "failed" else "")
    assert counted(run, "timeouts") == 1


def test_a_plain_run_killed_at_its_timeout_has_failed() -> None:
    run = claimed(PassRun)
    transitions.reap(table(PassRun), run.pk, run.lease, an_error(), kind=Failure.TIMEOUT)
    assert again(run).failure == "timeout"


def test_a_lost_run_that_goes_on_is_announced_as_deferred() -> None:
    with told(signals.run_deferred, AgainRun):
        reap(stale(AgainRun))
        pending = [call for call in connection.run_on_commit if "send_robust" in repr(call)]
    assert len(pending) == 1


# Ordinary looks


def test_a_row_is_read_as_the_orm_would_read_it() -> None:
    order = Order.objects.create()
    run = queued(SyncRun, order=order, args={"a": [1]})
    read, orm = again(run), SyncRun.objects.get(pk=run.pk)
    for field in SyncRun._meta.concrete_fields:
        assert getattr(read, field.attname) == getattr(orm, field.attname), field.name
    assert read.order == order
    assert transitions.read(table(SyncRun), 10**9) is None
