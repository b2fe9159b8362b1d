"""How a child comes by its next run, and the command that starts it all."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, ProgrammingError

from runcontract.exceptions import TransportUnavailable
from runcontract.lifecycle import transitions
from runcontract.transport import breaker_of
from runcontract.worker import child as child_module
from runcontract.worker.child import Child, ChildOptions, worker_name
from runcontract.worker.interrupts import Interrupts
from runcontract.worker.reports import BROKEN, DONE, RECYCLED, STOP, LineReader, Phase, Report
from tests.lab.models import MailRun, SyncRun

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])


class Lab:
    """A child in this process, and both ends of its pipes."""

    def __init__(self, **options: Any) -> None:
        report_in, self.report_out = os.pipe()
        order_in, self.orders = os.pipe()
        self.reader = LineReader(report_in)
        self.interrupts = Interrupts(order_in)
        chosen = ChildOptions(["default", "bulk"], **options)
        self.child = Child(chosen, "me", self.report_out, self.interrupts)

    def next(self, *, burst: bool = False) -> Any:
        found = self.child._next_run(burst)
        return found and found[1]

    @property
    def phases(self) -> list[Phase]:
        return [Report.parse(line).phase for line in self.reader.lines()]

    def close(self) -> None:
        for descriptor in (
            self.report_out,
            self.orders,
            self.reader.descriptor,
            self.interrupts._reader.descriptor,
        ):
            os.close(descriptor)


@pytest.fixture
def lab(redis_server) -> Iterator[Lab]:
    lab = Lab()
    yield lab
    lab.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses are noted and not waited for."""
    pauses: list[float] = []

    def sleep(self: Interrupts, seconds: float) -> bool:
        pauses.append(seconds)
        return not self.stopping

    monkeypatch.setattr(Interrupts, "sleep", sleep)
    return pauses


def failing(monkeypatch, name: str, *errors: BaseException, after: bool = False) -> list[Any]:
    """Let a transition fail as often as there are errors, before or after it was done."""
    left, calls = list(errors), []
    real = getattr(transitions, name)

    def move(*args: Any) -> Any:
        calls.append(args)
        if left and not after:
            raise left.pop(0)
        answer = real(*args)
        if left:
            raise left.pop(0)
        return answer

    monkeypatch.setattr(transitions, name, move)
    return calls


def test_claim_is_announced_before_it_is_made(lab) -> None:
    run = MailRun.objects.enqueue(job_id="one").run
    assert lab.next().pk == run.pk
    assert lab.phases == [Phase.TAKING]
    assert lab.next(burst=True) is None
    assert lab.child._code == DONE


def test_refused_claim_leaves_the_child_idle(lab) -> None:
    run = MailRun.objects.enqueue(job_id="one").run
    MailRun.objects.filter(pk=run.pk).update(lease=5)
    assert lab.next() is None
    assert lab.phases == [Phase.TAKING, Phase.IDLE]


@pytest.mark.parametrize("after", [False, True])
def test_claim_without_a_reply_is_asked_about_and_never_made_twice(
    lab, monkeypatch, quick, after
) -> None:
    run = MailRun.objects.enqueue(job_id="one").run
    failing(monkeypatch, "claim", OperationalError("away"), OperationalError("away"), after=after)
    claimed = lab.next()
    assert (claimed.pk, claimed.lease, claimed.attempts) == (run.pk, 1, 1)


def test_child_that_is_to_stop_while_the_database_is_away_leaves_its_claim_open(
    lab, monkeypatch, quick
) -> None:
    MailRun.objects.enqueue(job_id="one")
    failing(monkeypatch, "claim", OperationalError("away"))
    os.write(lab.orders, STOP)
    lab.interrupts._stopping = False
    monkeypatch.setattr(Child, "_return_message", lambda *_: pytest.fail("not yet taken"))
    table = lab.child._tables["lab.mailrun"]
    assert lab.child._claim(table, table.address(MailRun.objects.get().pk, 0)) is None
    assert lab.phases == [Phase.TAKING]
    with pytest.raises(StopIteration):
        lab.next()
    assert lab.child._code == RECYCLED


def test_claim_that_the_database_refuses_is_said_and_dropped(lab, monkeypatch, caplog) -> None:
    MailRun.objects.enqueue(job_id="one")
    failing(monkeypatch, "claim", ProgrammingError("no such column"))
    assert lab.next() is None
    assert lab.phases == [Phase.TAKING, Phase.IDLE]


def test_message_taken_while_stopping_goes_back(lab, monkeypatch, redis_server) -> None:
    MailRun.objects.enqueue(job_id="one")
    before = redis_server.lrange("rq:queue:default", 0, -1)
    real = child_module.take

    def take(*args: Any, **more: Any) -> Any:
        found = real(*args, **more)
        os.write(lab.orders, STOP)
        return found

    monkeypatch.setattr(child_module, "take", take)
    with pytest.raises(StopIteration):
        lab.next()
    assert redis_server.lrange("rq:queue:default", 0, -1) == before
    monkeypatch.setattr(child_module, "put_back", _unavailable)
    with pytest.raises(StopIteration):
        lab.child._from_message("default", before[0])
    assert lab.child._code == RECYCLED


def _unavailable(*_: Any, **__: Any) -> None:
    raise TransportUnavailable("away")


def test_journal_is_polled_lane_by_lane_while_redis_is_away(lab, monkeypatch, quick) -> None:
    monkeypatch.setattr(child_module, "take", _unavailable)
    bulk = MailRun.objects.enqueue(job_id="bulk", lane="bulk").run
    default = MailRun.objects.enqueue(job_id="default").run
    other = SyncRun.objects.enqueue(job_id="other table").run
    MailRun.objects.enqueue(job_id="not ours", lane="interactive")
    found = []
    for _ in range(4):
        found.append(lab.next())
        if found[-1] is not None:
            lab.child._perform(found[-1])
    assert [run and run.job_id for run in found if isinstance(run, MailRun)] == [
        default.job_id,
        bulk.job_id,
    ]
    assert {run and run.job_id for run in found} == {"default", "bulk", other.job_id, None}
    assert len(quick) == 1


def test_claim_from_the_journal_without_a_reply_is_found_even_if_redis_is_back(
    lab, monkeypatch, quick
) -> None:
    run = MailRun.objects.enqueue(job_id="one").run
    failing(monkeypatch, "claim_waiting", OperationalError("away"), after=True)
    with monkeypatch.context() as away:
        away.setattr(child_module, "take", _unavailable)
        while not lab.child._unsure:
            assert lab.next() is None
    assert not breaker_of("default").open
    assert lab.next().pk == run.pk
    lab.child._perform(transitions.claimed_by(lab.child._tables["lab.mailrun"], "me")[0])
    while lab.child._unsure:
        assert lab.next() is None


def test_burst_does_not_end_as_done_while_the_database_is_away(lab, monkeypatch, quick) -> None:
    monkeypatch.setattr(child_module, "take", _unavailable)
    failing(monkeypatch, "claim_waiting", OperationalError("away"))
    assert lab.next(burst=True) is None
    assert lab.child._code == BROKEN
    assert lab.next(burst=True) is None
    assert lab.child._code == DONE


def test_used_up_child_is_replaced(redis_server) -> None:
    for options in ({"max_runs": 1}, {"max_memory": 1}):
        lab = Lab(**options)
        if "max_runs" in options:
            MailRun.objects.enqueue(job_id="one")
            lab.child._perform(lab.next())
            assert MailRun.objects.get().state == "succeeded"
        with pytest.raises(StopIteration):
            lab.next()
        assert lab.child._code == RECYCLED
        lab.close()


def test_settled_run_leaves_the_query_log_empty(lab, settings) -> None:
    settings.DEBUG = True
    MailRun.objects.enqueue(job_id="one")
    lab.child._perform(lab.next())
    assert lab.phases[-1] is Phase.IDLE


def test_worker_name_is_never_its_predecessors() -> None:
    assert worker_name(1, "a") != worker_name(1, "b")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no lane 'nothing'"),
        (["default", "--processes", "0"], "--processes must be at least 1"),
        (["default", "--max-runs", "0"], "--max-runs must be at least 1"),
        (["default", "--max-memory", "-5"], "--max-memory must be at least 1"),
    ],
)
def test_command_refuses_what_cannot_work(arguments, message) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("runworker", *arguments)


def test_command_needs_lanes_and_one_server(settings) -> None:
    settings.RQ_QUEUES = {"a": {"URL": "redis://one/0"}, "b": {"URL": "redis://two/0"}}
    with pytest.raises(CommandError, match="different Redis servers"):
        call_command("runworker")
    settings.RQ_QUEUES = {}
    with pytest.raises(CommandError, match="names no lane"):
        call_command("runworker")
