"""Epochs: how a loss of Redis is noticed, and that the work that follows is done once."""

import pytest

from runcontract.models import SchedulerLease
from runcontract.registry import tables
from runcontract.scheduler import epochs as module
from runcontract.scheduler.epochs import catch_up, current_epochs
from runcontract.scheduler.lease import Lease
from runcontract.transport import breaker_of, epoch, start_epoch
from tests.lab.models import MailRun, OtherRun

pytestmark = pytest.mark.django_db(databases=["default", "jobs"])

LANE = "rq:queue:default"
EPOCH = "runcontract:epoch"


@pytest.fixture
def leader(redis_server) -> Lease:
    breaker_of("default")._closed_until = 0.0
    lease = Lease()
    lease.take()
    check(lease)
    return lease


def check(lease: Lease) -> None:
    found = current_epochs()
    for table in tables():
        catch_up(lease, found, table, lambda: None)


def queued(count: int = 3) -> None:
    for number in range(count):
        MailRun.objects.enqueue(job_id=f"m{number}")
        OtherRun.objects.enqueue(job_id=f"o{number}")


def test_first_sight_of_a_server_says_nothing(leader, caplog) -> None:
    assert "begins anew" not in caplog.text
    assert len(SchedulerLease.objects.get().epochs) == len(list(tables()))


@pytest.mark.django_db(transaction=True, databases=["default", "jobs"])
def test_flushed_server_gets_everything_once(leader, redis_server, caplog) -> None:
    queued()
    for _ in range(3):
        check(leader)
    assert redis_server.llen(LANE) == 6
    redis_server.flushall()
    for _ in range(3):
        check(leader)
    assert redis_server.llen(LANE) == 6
    assert caplog.text.count("begins anew; 3 due runs of lab.mailrun") == 1
    assert caplog.text.count("begins anew") == 2


def test_other_process_of_the_server_is_another_epoch(leader, redis_server, monkeypatch) -> None:
    queued()
    redis_server.delete(LANE)  # an old dump came back: the epoch's key is there, the messages not
    monkeypatch.setattr("runcontract.transport.messages._run_id", lambda _: "another process")
    check(leader)
    assert redis_server.llen(LANE) == 6


@pytest.mark.django_db(transaction=True, databases=["default", "jobs"])
def test_databases_that_are_swapped_are_noticed(leader, redis_server) -> None:
    queued()
    redis_server.swapdb(0, 1)
    check(leader)
    assert redis_server.llen(LANE) == 6
    redis_server.swapdb(0, 1)
    check(leader)
    assert redis_server.llen(LANE) == 12  # the old messages are there too, and harmless
    redis_server.flushall()


def test_leader_that_dies_before_it_remembers_leaves_the_work_to_the_next(
    leader, redis_server, monkeypatch
) -> None:
    queued()
    redis_server.flushall()
    with monkeypatch.context() as patched:
        patched.setattr(module, "sweep_everything", lambda *_: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(MemoryError):
            check(leader)
    assert redis_server.exists(EPOCH)  # Redis has the new epoch, the lease's row the old one
    assert not redis_server.exists(LANE)
    leader.release()
    successor = Lease()
    assert successor.take()
    check(successor)
    assert redis_server.llen(LANE) == 6


def test_epoch_is_not_remembered_while_the_server_does_not_take_everything(
    leader, redis_server, monkeypatch
) -> None:
    queued()
    redis_server.flushall()
    with monkeypatch.context() as patched:
        patched.setattr("runcontract.lifecycle.sweep.dispatch", lambda *_, **__: False)
        check(leader)
    assert not redis_server.exists(LANE)
    check(leader)
    assert redis_server.llen(LANE) == 6


@pytest.mark.parametrize("forged", [b"", b"\x00\xff", b"no epoch", b"x" * 1_000_000])
def test_forged_epoch_is_replaced(leader, redis_server, forged: bytes) -> None:
    redis_server.set(EPOCH, forged)
    assert epoch("default") is None
    check(leader)
    check(leader)
    assert len(redis_server.get(EPOCH)) == 32


def test_epoch_that_is_no_string_is_replaced(leader, redis_server) -> None:
    redis_server.delete(EPOCH)
    redis_server.rpush(EPOCH, "list")
    check(leader)
    assert len(redis_server.get(EPOCH)) == 32
    assert not breaker_of("default").open


def test_epoch_has_a_time_to_live_that_each_look_renews(leader, redis_server) -> None:
    redis_server.expire(EPOCH, 5)
    epoch("default")
    assert redis_server.ttl(EPOCH) > 600_000


def test_server_that_does_not_say_who_it_is_can_be_used(redis_server) -> None:
    redis_server.execute_command("ACL", "SETUSER", "default", "-info")
    try:
        name = start_epoch("default")
        assert name.endswith("@")
        assert epoch("default") == name
        assert not breaker_of("default").open
    finally:
        redis_server.execute_command("ACL", "SETUSER", "default", "+info")


def test_redis_that_is_away_is_not_a_loss(leader, monkeypatch) -> None:
    breaker_of("default").failed(OSError())
    assert current_epochs() == []
    breaker_of("default")._closed_until = 0.0
