"""Enqueue: created, duplicate or locked; and whatever happens, the caller's transaction lives."""

import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, connections, transaction
from django.test import override_settings

from runcontract import signals
from runcontract.exceptions import InvalidRun
from runcontract.lifecycle import transitions
from runcontract.transport import client
from runcontract.transport.messages import hint_key
from tests.lab.models import MailRun, Order, OtherRun, PassRun, SyncRun, UuidRun
from tests.settings import QUICK, run_settings
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
"""The test is about what a commit does."""

FAST_PATH = pytest.mark.parametrize("fast_path", [True, False], ids=["hints", "no_hints"])


@pytest.fixture
def hints(fast_path: bool, redis_server) -> Iterator[None]:
    """With hints there is one for job_id "a", as its dispatch would have left it."""
    if fast_path:
        redis_server.set(hint_key("lab.mailrun", "a"), "lab-mailrun-1-0")
    with override_settings(RUNCONTRACT=run_settings(QUICK | {"FAST_PATH": fast_path})):
        yield


# Created


@committed
def test_a_run_is_queued_and_its_address_dispatched(redis_server) -> None:
    answer = MailRun.objects.enqueue(job_id="a", lock_key="K", lane="bulk", note="mine")
    assert answer
    assert (answer.created, answer.reason, answer.differing) == (True, "", ())
    row = row_of(answer.run)
    assert (row["job_id"], row["lock_key"], row["lane"]) == ("a", "K", "bulk")
    assert (row["state"], row["lease"], row["attempts"], row["note"]) == ("queued", 0, 0, "mine")
    assert row["queued_at"] is not None
    assert row["dispatched_at"] is not None
    assert messages(redis_server, "bulk") == [f"lab-mailrun-{answer.run.pk}-0"]
    assert again(answer.run).queued_at == answer.run.queued_at


@committed
def test_a_uuid_key_is_part_of_the_address(redis_server) -> None:
    run = queued(UuidRun, id=uuid.UUID(int=7))
    assert messages(redis_server) == [f"lab-uuidrun-{run.pk.hex}-0"]


def test_the_policy_names_the_lane_of_runs_that_name_none(monkeypatch) -> None:
    with override_settings(RUNCONTRACT={"LANE": "interactive"}):
        assert queued(MailRun).lane == "interactive"


def test_without_a_job_id_each_run_has_one_of_its_own() -> None:
    one, two = queued(MailRun), queued(MailRun)
    assert one.job_id != two.job_id
    assert len(one.job_id) == 32


@committed
def test_each_receiver_is_told_after_the_commit() -> None:
    told: list[Any] = []

    def receiver(run: Any, **_: Any) -> None:
        told.append((run.pk, MailRun.objects.filter(pk=run.pk).exists()))

    signals.run_enqueued.connect(receiver, sender=MailRun)
    try:
        with transaction.atomic():
            run = queued(MailRun, job_id="a")
            assert told == []
        assert told == [(run.pk, True)]
        assert not MailRun.objects.enqueue(job_id="a")
        assert len(told) == 1
    finally:
        signals.run_enqueued.disconnect(receiver, sender=MailRun)


def test_own_fields_may_have_any_name_that_is_not_the_contracts() -> None:
    for name in ("model", "table", "rows"):
        given: dict[str, Any] = {name: 1}
        with pytest.raises(InvalidRun, match=f"no field '{name}'"):
            MailRun.objects.enqueue(**given)


# Duplicate


@FAST_PATH
@pytest.mark.usefixtures("hints")
def test_a_held_job_id_gives_the_run_that_holds_it() -> None:
    first = queued(MailRun, job_id="a", note="one")
    for _ in range(2):
        answer = MailRun.objects.enqueue(job_id="a", note="two")
        assert not answer
        assert (answer.run.pk, answer.reason, answer.rerun) == (first.pk, "duplicate", False)
        assert answer.differing == ("note",)
    assert row_of(first)["note"] == "one"
    assert MailRun.objects.count() == 1


@FAST_PATH
@pytest.mark.usefixtures("hints")
@pytest.mark.parametrize("holder", [queued, claimed, succeeded, failed, stale])
def test_a_job_id_is_held_in_every_state(holder) -> None:
    run = holder(MailRun, job_id="a")
    answer = MailRun.objects.enqueue(job_id="a")
    assert (answer.run.pk, answer.reason) == (run.pk, "duplicate")


@FAST_PATH
@pytest.mark.usefixtures("hints")
@pytest.mark.parametrize(
    ("holder", "age", "held"),
    [
        (succeeded, "1 second", True),
        (succeeded, "23 hours 59 minutes", True),
        (succeeded, "24 hours 1 minute", False),
        (failed, "59 seconds", True),
        (failed, "61 seconds", False),
    ],
)
def test_a_window_counts_from_the_end_of_the_run(holder, age, held) -> None:
    """H24: by the database's clock, from the end, not from the creation."""
    run = holder(MailRun, job_id="a")
    window = run.held_until - run.finished_at
    assert abs(window - timedelta(hours=24 if holder is succeeded else 0, seconds=0)) < timedelta(
        seconds=61
    )
    change(
        run,
        "finished_at = finished_at - %s::interval, held_until = held_until - %s::interval,"
        " queued_at = queued_at - interval '9 days'",
        age,
        age,
    )
    answer = MailRun.objects.enqueue(job_id="a")
    assert answer.created is not held
    assert (row_of(run)["released_at"] is None) is held
    if not held:
        row = row_of(answer.run)
        assert (row["attempts"], row["lease"], row["last_error"]) == (0, 0, None)
        assert row["heartbeat_at"] is row["started_at"] is row["next_retry_at"] is None


@FAST_PATH
@pytest.mark.usefixtures("hints")
def test_a_job_id_is_held_while_a_run_waits_is_given_back_or_went_stale() -> None:
    """H24, the states between."""
    run = claimed(MailRun, job_id="a")
    transitions.defer(run, timedelta(hours=1), an_error(), {})
    assert MailRun.objects.enqueue(job_id="a").reason == "duplicate"
    run = claim(change(run, "next_retry_at = NULL"))
    transitions.give_back(table(MailRun), run.pk, run.lease)
    assert MailRun.objects.enqueue(job_id="a").reason == "duplicate"
    run = claim(again(run))
    reap(change(run, "heartbeat_at = now() - interval '1 hour'"))
    answer = MailRun.objects.enqueue(job_id="a")
    assert (answer.reason, answer.run.failure) == ("duplicate", "stale")


def test_a_zero_window_holdsnullcontext() -> None:
    with override_settings(RUNCONTRACT={"HOLD_SUCCEEDED": timedelta(0)}):
        for _ in range(3):
            succeeded(MailRun, job_id="a")
    assert MailRun.objects.filter(job_id="a").count() == 3


def test_tables_do_not_influence_each_other() -> None:
    """H24, H35: one job_id and one lock in two tables."""
    assert MailRun.objects.enqueue(job_id="a", lock_key="K")
    assert SyncRun.objects.enqueue(job_id="a", lock_key="K")


@pytest.mark.parametrize("pair", [("a", "A"), ("a", "a "), ("\u00e9", "e\u0301"), ("a:b", "a_b")])
def test_job_ids_that_differ_in_anything_differ(pair) -> None:
    """H24, H11: case, a trailing blank, one or two code points, an escaped character."""
    one, two = pair
    assert MailRun.objects.enqueue(job_id=one, lock_key=one)
    assert MailRun.objects.enqueue(job_id=two, lock_key=two)


def test_differing_fields_are_named_and_equal_ones_are_not() -> None:
    order = Order.objects.create()
    given: dict[str, Any] = {"args": {"n": [1, None]}, "note": "x", "progress": 3, "order": order}
    run = queued(SyncRun, job_id="a", lock_key="K", **given)
    assert SyncRun.objects.enqueue(job_id="a", lock_key="K", **given).differing == ()
    assert SyncRun.objects.enqueue(job_id="a").differing == ()
    other = SyncRun.objects.enqueue(
        job_id="a", lock_key="L", args={"n": [2]}, progress="3", note="y", order_id=None
    )
    assert other.differing == ("args", "note", "order_id", "lock_key")
    assert row_of(run)["lock_key"] == "K"


# The lock


@pytest.mark.parametrize("holder", [queued, claimed])
def test_a_taken_lock_gives_its_holder(holder) -> None:
    run = holder(MailRun, job_id="a", lock_key="K")
    answer = MailRun.objects.enqueue(job_id="b", lock_key="K", note="b")
    assert not answer
    assert (answer.run.pk, answer.reason, answer.rerun) == (run.pk, "locked", False)
    assert answer.differing == ("note",)
    assert MailRun.objects.count() == 1
    assert row_of(run)["rerun_requested"] is False


def test_a_waiting_retry_keeps_its_lock_and_runs_beside_nobody() -> None:
    """H01."""
    run = claimed(MailRun, job_id="a", lock_key="K")
    transitions.defer(run, timedelta(hours=1), an_error(), {})
    answer = MailRun.objects.enqueue(job_id="b", lock_key="K")
    assert (answer.run.pk, answer.reason) == (run.pk, "locked")


def test_a_lock_is_free_in_the_moment_its_run_ends() -> None:
    """H35: by success, failure, reaping, cancel and deletion."""

    def delete(_: Any, **given: Any) -> None:
        queued(MailRun, **given).delete()

    def cancel(_: Any, **given: Any) -> None:
        queued(MailRun, **given).cancel()

    def stale_and_reaped(_: Any, **given: Any) -> None:
        reap(stale(MailRun, **given))

    ends: list[Any] = [succeeded, failed, stale_and_reaped, cancel, delete]
    for number, end in enumerate(ends):
        end(MailRun, job_id=f"a{number}", lock_key="K")
    assert MailRun.objects.enqueue(job_id="last", lock_key="K")


@pytest.mark.parametrize("holder", [queued, claimed])
def test_a_rerun_is_asked_of_the_holder(holder) -> None:
    run = holder(MailRun, job_id="a", lock_key="K", note="a")
    answer = MailRun.objects.enqueue(job_id="b", lock_key="K", note="b", if_locked="rerun")
    assert (answer.created, answer.reason, answer.rerun) == (False, "locked", True)
    assert answer.differing == ("note",)
    assert answer.run.rerun_requested
    assert row_of(run)["rerun_requested"] is True
    assert MailRun.objects.count() == 1


def test_a_rerun_asked_in_a_transaction_that_rolls_back_was_never_asked() -> None:
    run = claimed(MailRun, lock_key="K")
    with rolled_back():
        MailRun.objects.enqueue(lock_key="K", if_locked="rerun")
    assert row_of(run)["rerun_requested"] is False


def test_a_claim_covers_the_reruns_asked_before_it() -> None:
    run = queued(MailRun, lock_key="K")
    MailRun.objects.enqueue(lock_key="K", if_locked="rerun")
    transitions.succeed(claim(run), {})
    assert MailRun.objects.count() == 1


# The caller's transaction


@committed
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_refusal_leaves_the_callers_transaction_usable(isolation: str) -> None:
    """H16: by lock and by job_id, in the transaction itself and in a savepoint of it."""
    holder = queued(SyncRun, job_id="a", lock_key="K")
    refused: list[dict[str, Any]] = [{"job_id": "a"}, {"lock_key": "K"}]
    for given in refused:
        for inner in (nullcontext(), transaction.atomic()):
            with transaction.atomic():
                sql(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
                Order.objects.create(name="before")
                with inner:
                    answer = SyncRun.objects.enqueue(**given)
                Order.objects.create(name="after")
            assert answer.run.pk == holder.pk
    assert Order.objects.count() == 8
    assert SyncRun.objects.count() == 1


def test_inside_a_test_case_that_never_commits(redis_server) -> None:
    """H16."""
    first = queued(MailRun, job_id="a", lock_key="K")
    assert MailRun.objects.enqueue(job_id="a").run == first
    assert MailRun.objects.enqueue(lock_key="K").run == first
    assert messages(redis_server) == []


@committed
def test_a_constraint_of_the_consumers_own_surfaces_as_its_own() -> None:
    with own_unique(MailRun, "note") as name:
        queued(MailRun, note="taken")
        with transaction.atomic():
            Order.objects.create()
            with pytest.raises(IntegrityError, match=name):
                MailRun.objects.enqueue(job_id="b", lock_key="L", note="taken")
            Order.objects.create()
        assert Order.objects.count() == 2
        with pytest.raises(IntegrityError, match=name):
            MailRun.objects.enqueue(note="taken")
    assert MailRun.objects.count() == 1


@committed
def test_a_broken_foreign_key_is_reported_as_what_it_is(redis_server) -> None:
    with pytest.raises(IntegrityError, match="foreign key"):
        SyncRun.objects.enqueue(job_id="a", order_id=999_999)
    with pytest.raises(IntegrityError, match="foreign key"), transaction.atomic():
        assert SyncRun.objects.enqueue(job_id="a", order_id=999_999)
    assert not SyncRun.objects.exists()
    assert messages(redis_server) == []


@committed
def test_an_error_of_the_database_marks_the_callers_transaction(redis_server) -> None:
    """A caller that swallows it must not seem to commit, with messages for rows that are not."""
    sql("ALTER TABLE lab_mailrun ADD CONSTRAINT own CHECK (note <> 'bad')")
    try:
        with transaction.atomic():
            queued(MailRun, job_id="a")
            with pytest.raises(IntegrityError, match="own"):
                MailRun.objects.enqueue(note="bad")
            with pytest.raises(transaction.TransactionManagementError):
                Order.objects.create()
            assert connection.needs_rollback
    finally:
        sql("ALTER TABLE lab_mailrun DROP CONSTRAINT own")
    assert not MailRun.objects.exists()
    assert messages(redis_server) == []


# When it is sent (H27)


@committed
def test_nothing_is_sent_before_the_commit_and_nothing_after_a_rollback(redis_server) -> None:
    with transaction.atomic():
        queued(MailRun, job_id="a")
        assert messages(redis_server) == []
    assert len(messages(redis_server)) == 1
    with rolled_back():
        queued(MailRun, job_id="b", lock_key="K")
    assert len(messages(redis_server)) == 1
    assert MailRun.objects.enqueue(job_id="b", lock_key="K")


@committed
def test_a_rolled_back_savepoint_sends_nothing(redis_server) -> None:
    with transaction.atomic():
        outer = queued(MailRun, job_id="outer")
        with rolled_back():
            queued(MailRun, job_id="inner")
        with transaction.atomic():
            kept = queued(MailRun, job_id="kept")
        last = queued(MailRun, job_id="last")
    sent = {int(message.split("-")[2]) for message in messages(redis_server)}
    assert sent == {outer.pk, kept.pk, last.pk}


@committed
def test_an_inner_block_that_was_fine_is_lost_with_the_outer_one(redis_server) -> None:
    with rolled_back(), transaction.atomic():
        queued(MailRun)
    assert messages(redis_server) == []


@committed
def test_a_transaction_has_one_callback_however_many_runs(redis_server) -> None:
    seen: list[str] = []
    with transaction.atomic():
        for number in range(20):
            queued(MailRun, job_id=f"{number}")
            if number % 5 == 0:
                transaction.on_commit(lambda: seen.append("own"))
        ours = [item for item in connection.run_on_commit if "Batch" in repr(item[1])]
        assert len(ours) == 1
    assert len(messages(redis_server)) == 20
    assert seen == ["own"] * 4


@committed
def test_enqueue_in_an_on_commit_callback_is_sent_at_once(redis_server) -> None:
    with transaction.atomic():
        transaction.on_commit(lambda: MailRun.objects.enqueue(job_id="late"))
    assert len(messages(redis_server)) == 1


@committed
def test_under_manual_transactions_the_row_is_left_to_the_sweep(redis_server) -> None:
    """H27: set_autocommit(False) and commit()."""
    told: list[Any] = []

    def receiver(**_: Any) -> None:
        told.append(1)

    signals.run_enqueued.connect(receiver, sender=MailRun)
    transaction.set_autocommit(False)
    try:
        run = queued(MailRun, job_id="a")
        assert MailRun.objects.enqueue(job_id="a").reason == "duplicate"
        transaction.commit()
        assert queued(MailRun, job_id="b")
        transaction.rollback()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
        signals.run_enqueued.disconnect(receiver, sender=MailRun)
    assert [r.pk for r in MailRun.objects.all()] == [run.pk]
    assert row_of(run)["dispatched_at"] is None
    assert messages(redis_server) == []


@pytest.mark.django_db(transaction=True, databases=["default", "jobs"])
def test_a_model_on_another_database_commits_on_its_own(redis_server) -> None:
    with rolled_back():
        run = queued(OtherRun, job_id="a")
        assert messages(redis_server) == [f"lab-otherrun-{run.pk}-0"]
        assert OtherRun.objects.enqueue(job_id="a").reason == "duplicate"
    assert row_of(run)["state"] == "queued"
    with transaction.atomic(using="jobs"):
        queued(OtherRun, job_id="b")
        assert len(messages(redis_server)) == 1
        assert "jobs" in [c.alias for c in connections.all() if c.run_on_commit]
    assert len(messages(redis_server)) == 2


# The hint


@committed
def test_a_hint_lives_as_long_as_the_window(redis_server) -> None:
    queued(MailRun, job_id="a")
    left = redis_server.ttl(hint_key("lab.mailrun", "a"))
    assert 86_000 < left <= 86_400


@committed
def test_no_hint_is_written_where_hints_are_off_or_nothing_is_held(redis_server) -> None:
    with override_settings(RUNCONTRACT={"FAST_PATH": False}):
        queued(MailRun, job_id="a")
    with override_settings(RUNCONTRACT={"HOLD_SUCCEEDED": timedelta(0)}):
        queued(MailRun, job_id="b")
    assert redis_server.keys("runcontract:held:*") == []


def test_a_stale_hint_is_confirmed_before_anything_is_refused(redis_server) -> None:
    redis_server.set(hint_key("lab.mailrun", "a"), "whatever")
    assert MailRun.objects.enqueue(job_id="a")
    run = MailRun.objects.get()
    change(
        run,
        "state = 'succeeded', finished_at = now(), held_until = now() - interval '1 s'",
    )
    assert MailRun.objects.enqueue(job_id="a")
    assert MailRun.objects.filter(released_at__isnull=True).count() == 1


@committed
def test_a_confirmed_hint_saves_the_insert() -> None:
    run = queued(MailRun, job_id="a")
    before = sql("SELECT last_value FROM lab_mailrun_id_seq")
    assert MailRun.objects.enqueue(job_id="a").run == run
    assert sql("SELECT last_value FROM lab_mailrun_id_seq") == before


@committed
def test_a_redis_that_was_flushed_gives_the_same_answers(redis_server) -> None:
    run = queued(MailRun, job_id="a")
    redis_server.flushall()
    assert MailRun.objects.enqueue(job_id="a").run == run


# Another process made the row meanwhile


def test_each_door_gives_an_answer_for_a_plain_run_too() -> None:
    run = queued(PassRun, job_id="a", lock_key="K")
    assert PassRun.objects.enqueue(job_id="a").run == run
    assert PassRun.objects.enqueue(lock_key="K").run == run
    change(run, "lock_key = NULL")
    claim(run)
    assert PassRun.objects.enqueue(job_id="a").run == run


def test_clients_of_redis_never_repeat_a_command() -> None:
    assert client("default").connection_pool.connection_kwargs["retry"]._retries == 0
