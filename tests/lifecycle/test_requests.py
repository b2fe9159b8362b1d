"""Cancel and redo: what people ask of a run."""

from typing import Any

import pytest

from runcontract.contract.states import Failure
from runcontract.lifecycle import transitions
from tests.lab.models import MailRun, Order, PassRun, SyncRun
from tests.support.runs import (
    again,
    an_error,
    change,
    claim,
    claimed,
    failed,
    messages,
    own_unique,
    queued,
    reap,
    rolled_back,
    row_of,
    sql,
    stale,
    succeeded,
    table,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_server")]

committed = pytest.mark.django_db(transaction=True)


# Cancel


@pytest.mark.parametrize("model", [MailRun, PassRun])
def test_a_queued_run_is_cancelled_at_once(model: Any) -> None:
    run = queued(model, job_id="a", lock_key="K", hook="keep")
    assert run.cancel() == "cancelled"
    stored = again(run)
    assert (stored.state, stored.failure) == ("failed", "cancelled")
    assert stored.held_until > stored.finished_at
    assert stored.last_error["type"] == "Cancelled"
    assert Order.objects.count() == 1
    assert model.objects.enqueue(lock_key="K")
    assert model.objects.enqueue(job_id="a").reason == "duplicate"
    assert transitions.claim(table(model), run.pk, 0, "w") is None


def test_a_waiting_retry_is_cancelled_at_once_and_keeps_its_history() -> None:
    run = claimed(MailRun)
    transitions.defer(run, MailRun.policy.effective().hold_failed, an_error("busy"), {})
    assert run.cancel() == "cancelled"
    assert again(run).last_error["history"][0]["message"] == "busy"


def test_a_running_run_is_asked_and_asked_again() -> None:
    run = claimed(MailRun)
    assert run.cancel() == "asked"
    assert run.cancel() == "asked"
    row = row_of(run)
    assert (row["state"], row["cancel_requested"]) == ("running", True)


@pytest.mark.parametrize("holder", [succeeded, failed])
def test_a_run_that_has_ended_is_left_alone(holder: Any) -> None:
    run = holder(MailRun)
    before = row_of(run)
    assert run.cancel() == "ended"
    assert row_of(run) == before


def test_a_deleted_run_is_gone() -> None:
    run = queued(MailRun)
    MailRun.objects.filter(pk=run.pk).delete()
    assert run.cancel() == "gone"


def test_a_cancel_in_a_transaction_that_rolls_back_was_none() -> None:
    run = queued(MailRun, hook="keep")
    with rolled_back():
        run.cancel()
    assert row_of(run)["state"] == "queued"
    assert not Order.objects.exists()


# Redo, with a counter: the same row


def test_redo_queues_the_same_row_with_a_fresh_allowance() -> None:
    run = claimed(MailRun, job_id="a", lock_key="K", note="mine")
    change(run, "attempts = 5, stats = %s", '{"lost": 2, "deferred": 1, "mine": 1}')
    transitions.fail(run, Failure.EXHAUSTED, an_error(), {"steps": []})
    answer = again(run).redo()
    assert (answer.created, answer.reason, answer.run.pk) == (True, "", run.pk)
    row, stored = row_of(run), again(run)
    assert (row["state"], row["failure"], row["attempts"]) == ("queued", "", 0)
    assert row["lease"] > run.lease
    assert (row["cancel_requested"], row["rerun_requested"], row["worker"]) == (False, False, "")
    for name in ("started_at", "finished_at", "held_until", "released_at", "next_retry_at"):
        assert row[name] is None, name
    assert stored.stats == {"mine": 1}
    assert (stored.note, stored.lock_key) == ("mine", "K")
    assert claim(stored).attempts == 1


def test_a_redone_run_keeps_its_earlier_errors_as_history() -> None:
    run = failed(MailRun)
    run.redo()
    again_failed = claim(again(run))
    transitions.fail(again_failed, Failure.PERMANENT, an_error("again"), {})
    stored = again(run).last_error
    assert stored["message"] == "again"
    assert stored["history"][0]["message"] == "no"


@committed
def test_a_redone_run_has_a_message_of_its_own(redis_server: Any) -> None:
    """The one of a run that was cancelled in its lane is still there."""
    run = queued(MailRun)
    run.cancel()
    assert run.redo()
    old, new = messages(redis_server)
    assert (old, new) == (f"lab-mailrun-{run.pk}-0", f"lab-mailrun-{run.pk}-1")
    assert transitions.claim(table(MailRun), run.pk, 0, "w") is None
    assert transitions.claim(table(MailRun), run.pk, 1, "w") is not None


@committed
def test_a_redo_that_rolls_back_sends_nothing(redis_server: Any) -> None:
    run = failed(MailRun)
    redis_server.flushall()
    with rolled_back():
        assert run.redo()
    assert messages(redis_server) == []
    assert row_of(run)["state"] == "failed"


def test_a_stale_run_is_redone_though_its_worker_still_lives() -> None:
    run = claimed(MailRun)
    reap(change(run, "heartbeat_at = now() - interval '1 hour'"))
    assert run.redo()
    with pytest.raises(Exception, match="no longer held"):
        transitions.succeed(run, {})
    assert row_of(run)["state"] == "queued"


@pytest.mark.parametrize("model", [MailRun, PassRun])
@pytest.mark.parametrize("holder", [queued, claimed, succeeded])
def test_only_what_has_failed_is_redone(model: Any, holder: Any) -> None:
    run = holder(model)
    before = row_of(run)
    answer = run.redo()
    assert (answer.created, answer.reason, answer.run.pk) == (False, "not failed", run.pk)
    assert row_of(run) == before


@pytest.mark.parametrize("model", [MailRun, PassRun])
def test_a_second_press_says_that_it_is_queued_already(model: Any) -> None:
    run = failed(model)
    assert run.redo()
    assert not run.redo()
    assert model.objects.filter(state="queued").count() == 1


@pytest.mark.parametrize("model", [MailRun, PassRun])
def test_redo_of_a_deleted_run_is_gone(model: Any) -> None:
    run = failed(model)
    model.objects.filter(pk=run.pk).delete()
    answer = run.redo()
    assert (answer.created, answer.reason) == (False, "gone")


@pytest.mark.parametrize("model", [MailRun, PassRun])
def test_a_lock_that_is_taken_is_named_and_the_transaction_lives(model: Any) -> None:
    run = failed(model, job_id="a", lock_key="K")
    holder = queued(model, job_id="b", lock_key="K")
    before = row_of(run)
    answer = run.redo()
    assert (answer.created, answer.reason, answer.run.pk) == (False, "locked", holder.pk)
    assert row_of(run) == before
    Order.objects.create()


@pytest.mark.parametrize("model", [MailRun, PassRun])
def test_a_job_id_that_is_held_by_another_is_named(model: Any) -> None:
    run = change(failed(model, job_id="a"), "released_at = now()")
    holder = queued(model, job_id="a")
    answer = run.redo()
    assert (answer.created, answer.reason, answer.run.pk) == (False, "duplicate", holder.pk)
    assert row_of(run)["released_at"] is not None


@pytest.mark.parametrize("model", [MailRun, PassRun])
def test_a_holder_whose_window_is_over_is_released_by_the_redo(model: Any) -> None:
    run = change(failed(model, job_id="a"), "released_at = now()")
    holder = change(succeeded(model, job_id="a"), "held_until = now() - interval '1 s'")
    assert run.redo()
    assert row_of(holder)["released_at"] is not None


@committed
@pytest.mark.parametrize("model", [MailRun, PassRun])
def test_a_constraint_of_the_models_own_refuses_a_redo_and_it_is_said(model: Any) -> None:
    run = failed(model, note="bad")
    name = f"{model._meta.db_table}"
    sql(f"ALTER TABLE {name} ADD CONSTRAINT own CHECK (note <> 'bad' OR state <> 'queued')")
    try:
        answer = run.redo()
    finally:
        sql(f"ALTER TABLE {name} DROP CONSTRAINT own")
    assert (answer.created, answer.reason) == (False, "refused by a constraint of the model's own")
    assert row_of(run)["state"] == "failed"


@committed
def test_a_unique_of_the_models_own_refuses_a_new_run_and_it_is_said() -> None:
    with own_unique(PassRun, "note"):
        run = failed(PassRun, note="one")
        answer = run.redo()
    assert answer.reason == "refused by a constraint of the model's own"


# Redo, plain: a new run


def test_a_plain_run_is_redone_by_a_new_run() -> None:
    run = failed(PassRun, job_id="a", lock_key="K", lane="bulk", note="mine", args={"n": 1})
    answer = run.redo()
    new = again(answer.run)
    assert answer.created
    assert new.pk != run.pk
    assert (new.job_id, new.lock_key, new.lane) == ("a", "K", "bulk")
    assert (new.note, new.args, new.state, new.lease) == ("mine", {"n": 1}, "queued", 0)
    assert new.last_error is None
    old = again(run)
    assert (old.state, old.failure) == ("failed", "permanent")
    assert old.released_at is not None


@committed
def test_a_new_run_is_dispatched(redis_server: Any) -> None:
    run = failed(PassRun)
    redis_server.flushall()
    assert messages(redis_server) == []
    new = run.redo().run
    assert messages(redis_server) == [f"lab-passrun-{new.pk}-0"]


def test_what_was_released_long_ago_can_be_redone() -> None:
    for model in (MailRun, PassRun):
        run = change(failed(model), "released_at = now() - interval '1 hour'")
        assert run.redo()


def test_a_redo_refers_to_what_the_run_referred_to() -> None:
    order = Order.objects.create()
    run = failed(SyncRun, order=order)
    assert run.redo().run.order == order


def test_a_stale_run_is_cancelled_by_nobody_but_its_worker_or_the_watchdog() -> None:
    run = stale(MailRun)
    assert run.cancel() == "asked"
    assert reap(again(run)).failure == "cancelled"
