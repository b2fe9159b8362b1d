"""What one claim decides, in this very process, on a real database."""

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from runcontract import TransientError
from runcontract.exceptions import LeaseLost
from runcontract.lifecycle import transitions
from runcontract.lifecycle.table import table_of
from runcontract.signals import run_started
from runcontract.worker import execution
from runcontract.worker.execution import Execution, GivenUp
from runcontract.worker.interrupts import Interrupts
from runcontract.worker.reports import STOP, Hold, Order, Phase, Report, encode_order
from tests.lab.models import AtomicRun, MailRun, PassRun
from tests.lab.models import Order as Thing

pytestmark = pytest.mark.django_db(transaction=True)


class Child:
    """A child without its supervisor."""

    def __init__(self) -> None:
        out, self.orders = os.pipe()
        self.interrupts = Interrupts(out)
        self.interrupts.install()
        self.reports: list[Report] = []

    def claim(self, run: Any) -> Any:
        claimed = transitions.claim(table_of(type(run)), run.pk, run.lease, "me")
        assert claimed is not None
        return claimed

    def execute(self, run: Any) -> Any:
        claimed = self.claim(run)
        Execution(claimed, self.interrupts, self.reports.append).execute()
        run.refresh_from_db()
        return run

    def order(self, order: Order, run: Any) -> None:
        hold = Hold(run._meta.label_lower, run.pk, run.lease + 1)
        os.write(self.orders, encode_order(order, hold))

    @property
    def phases(self) -> list[Phase]:
        return [report.phase for report in self.reports]


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child()
    yield child
    os.close(child.orders)
    os.close(child.interrupts._reader.descriptor)


def enqueue(model: type, perform: Any = None, **fields: Any) -> Any:
    run = model.objects.enqueue(**fields).run  # type: ignore[attr-defined]
    if perform is not None:
        model.perform = perform  # type: ignore[attr-defined]
    return run


@pytest.fixture
def perform(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`perform(Model, function)`: what the runs of a model do in this test."""

    def put(model: type, function: Any) -> Any:
        monkeypatch.setattr(model, "perform", function)
        return enqueue(model)

    return put


def raising(*errors: BaseException | None) -> Any:
    left = list(errors)

    def perform(run: Any, ctx: Any) -> None:
        error = left.pop(0)
        if error is not None:
            raise error

    return perform


def test_end_of_perform_is_reported_before_the_settle(child, perform) -> None:
    states = []

    def tell(report: Report) -> None:
        states.append((report.phase, MailRun.objects.get().state))

    run = child.claim(perform(MailRun, raising(None)))
    Execution(run, child.interrupts, tell).execute()
    assert states == [
        (Phase.PERFORMING, "running"),
        (Phase.SETTLING, "running"),
        (Phase.SETTLING, "running"),
    ]
    assert MailRun.objects.get().state == "succeeded"


def test_listener_of_the_start_runs_under_the_eye_of_the_supervisor(child, perform) -> None:
    seen: list[Phase] = []

    def listener(run: Any, **_: Any) -> None:
        seen.extend(child.phases)

    run_started.connect(listener)
    try:
        child.execute(perform(MailRun, raising(None)))
    finally:
        run_started.disconnect(listener)
    assert seen == [Phase.PERFORMING]


def test_attempts_end_exhausted_at_the_cap_of_the_policy(child, perform, settings) -> None:
    settings.RUNCONTRACT = settings.RUNCONTRACT | {"MAX_ATTEMPTS": 2}
    run = child.execute(perform(MailRun, raising(TransientError("a"), TransientError("b"))))
    assert (run.state, run.failure, run.attempts) == ("failed", "exhausted", 2)
    assert child.phases.count(Phase.PAUSING) == 1


def test_plain_model_has_short_pauses_only(child, perform, settings) -> None:
    short = {"SHORT_PAUSE": timedelta(seconds=0.1), "BACKOFF_FLOOR": timedelta(seconds=60)}
    settings.RUNCONTRACT = settings.RUNCONTRACT | short
    run = child.execute(perform(PassRun, raising(TransientError("a"), None)))
    assert (run.state, run.stats["repeats"]) == ("succeeded", 1)
    run = child.execute(perform(PassRun, raising(TransientError("a", retry_after=60))))
    assert (run.state, run.failure) == ("failed", "exhausted")


@pytest.mark.parametrize("error", [RuntimeError("turned"), TypeError("turned"), SystemExit()])
def test_what_a_job_raises_after_it_was_told_to_give_up_is_no_verdict(
    child, perform, error
) -> None:
    def perform_it(run: Any, ctx: Any) -> None:
        child.order(Order.GIVE_UP, MailRun(pk=run.pk, lease=run.lease - 1))
        raise error

    run = perform(MailRun, perform_it)
    with pytest.raises(GivenUp):
        child.execute(run)
    run.refresh_from_db()
    assert (run.state, run.last_error) == ("running", None)
    assert Phase.SETTLING not in child.phases


def test_job_that_ends_well_although_it_was_told_to_give_up_is_settled(child, perform) -> None:
    def perform_it(run: Any, ctx: Any) -> None:
        child.order(Order.GIVE_UP, MailRun(pk=run.pk, lease=run.lease - 1))

    assert child.execute(perform(MailRun, perform_it)).state == "succeeded"


def test_stop_in_a_pause_defers_and_a_cancel_in_it_ends_the_run(child, perform, settings) -> None:
    long = {"SHORT_PAUSE": timedelta(seconds=60), "BACKOFF_FLOOR": timedelta(seconds=50)}
    settings.RUNCONTRACT = settings.RUNCONTRACT | long

    def failing(order: bytes) -> Any:
        def perform_it(run: Any, ctx: Any) -> None:
            os.write(child.orders, order or encode_order(Order.CANCEL, _hold(run)))
            raise TransientError("busy")

        return perform_it

    cancelled = perform(MailRun, failing(b""))
    run = child.execute(cancelled)
    assert (run.state, run.failure) == ("failed", "cancelled")
    run = child.execute(perform(MailRun, failing(STOP)))
    assert (run.state, run.attempts, run.stats["deferred"]) == ("queued", 1, 1)


def _hold(run: Any) -> Hold:
    return Hold(run._meta.label_lower, run.pk, run.lease)


def test_lost_lease_writes_nothing(child, perform) -> None:
    def perform_it(run: Any, ctx: Any) -> None:
        MailRun.objects.filter(pk=run.pk).update(lease=9)

    run = child.execute(perform(MailRun, perform_it))
    assert (run.state, run.lease) == ("running", 9)


def test_lease_lost_that_a_job_passes_on_is_not_a_failure(child, perform) -> None:
    def perform_it(run: Any, ctx: Any) -> None:
        raise LeaseLost("lab.mailrun", run.pk, run.lease)

    run = child.execute(perform(MailRun, perform_it))
    assert (run.state, run.last_error) == ("running", None)


def test_progress_of_a_cancelled_run_ends_it_without_any_signal(child, perform) -> None:
    def perform_it(run: Any, ctx: Any) -> None:
        MailRun.objects.filter(pk=run.pk).update(cancel_requested=True)
        ctx._noted_at -= 10
        ctx.progress(1, 2)
        pytest.fail("not reached")

    run = child.execute(perform(MailRun, perform_it))
    assert (run.failure, run.stats["progress"]) == ("cancelled", {"done": 1, "total": 2})


def test_session_that_a_job_made_read_only_does_not_stop_its_settle(child, perform) -> None:
    def perform_it(run: Any, ctx: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = on")

    assert child.execute(perform(MailRun, perform_it)).state == "succeeded"


def test_settle_that_never_can_succeed_ends_the_process_and_not_in_a_loop(
    child, perform, monkeypatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1/0")

    monkeypatch.setattr(transitions, "succeed", refused)
    with pytest.raises(Exception, match="division by zero"):
        child.execute(perform(MailRun, raising(None)))


def test_settle_waits_for_a_row_lock_no_longer_than_its_limit_and_tries_again(
    child, perform, monkeypatch
) -> None:
    """A cut connection is not noticed by the kernel for a quarter of an hour; the alarm is."""
    monkeypatch.setattr(execution, "SETTLE_EVERY", 0.3)
    run = perform(MailRun, raising(None))
    claimed = child.claim(run)
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT 1 FROM lab_mailrun WHERE id = %s FOR UPDATE", [run.pk])
        tries = []
        succeed = transitions.succeed

        def counted(*args: Any) -> None:
            tries.append(1)
            if len(tries) == 3:
                with other.cursor() as cursor:
                    cursor.execute("COMMIT")
            succeed(*args)

        monkeypatch.setattr(transitions, "succeed", counted)
        work = Execution(claimed, child.interrupts, child.reports.append)
        work._persist(lambda _: transitions.succeed(claimed, {}), seconds=0.3)
    finally:
        other.close()
    run.refresh_from_db()
    assert (run.state, len(tries)) == ("succeeded", 3)


@pytest.mark.parametrize("pause", [timedelta(0), timedelta(seconds=60)])
def test_commit_whose_reply_was_lost_is_asked_about_and_not_repeated(
    child, perform, monkeypatch, settings, pause
) -> None:
    """The row is read: terminal under our lease is ours, even if the first look came too early."""
    settings.RUNCONTRACT = settings.RUNCONTRACT | {"SHORT_PAUSE": timedelta(seconds=1)}
    performed = []

    def perform_it(run: Any, ctx: Any) -> None:
        performed.append(ctx.attempt)
        Thing.objects.create(name="effect")

    wrapper = connections["default"]
    commit = wrapper.commit

    def lost() -> None:
        commit()
        monkeypatch.setattr(wrapper, "commit", commit)
        raise OperationalError("the reply was lost")

    run = perform(AtomicRun, perform_it)
    claimed = child.claim(run)
    monkeypatch.setattr(wrapper, "commit", lost)
    if pause:
        monkeypatch.setattr(Execution, "_asked", lambda self, error: execution.Outcome(error))
    Execution(claimed, child.interrupts, child.reports.append).execute()
    run.refresh_from_db()
    assert (run.state, run.attempts, performed) == ("succeeded", 1, [1])
    assert Thing.objects.count() == 1


def test_rolled_back_commit_is_performed_again_as_a_whole(child, perform, monkeypatch) -> None:
    def perform_it(run: Any, ctx: Any) -> None:
        Thing.objects.create(name=f"effect {ctx.attempt}")

    wrapper = connections["default"]
    commit = wrapper.commit

    def refused() -> None:
        monkeypatch.setattr(wrapper, "commit", commit)
        connection.rollback()
        raise OperationalError("the server went away")

    run = perform(AtomicRun, perform_it)
    claimed = child.claim(run)
    monkeypatch.setattr(wrapper, "commit", refused)
    Execution(claimed, child.interrupts, child.reports.append).execute()
    run.refresh_from_db()
    assert (run.state, run.attempts) == ("succeeded", 2)
    assert [thing.name for thing in Thing.objects.all()] == ["effect 2"]


def test_failure_inside_an_atomic_perform_rolls_its_effects_back(child, perform) -> None:
    def perform_it(run: Any, ctx: Any) -> None:
        Thing.objects.create(name="gone")
        raise TypeError("no")

    run = child.execute(perform(AtomicRun, perform_it))
    assert (run.state, run.failure) == ("failed", "permanent")
    assert not Thing.objects.exists()
    assert not transaction.get_connection().in_atomic_block
