"""A worker in RQ's registry: it comes, comes again after a loss, and leaves nothing behind."""

import pickle

import pytest
from rq import Worker
from rq.exceptions import StopRequested
from rq.worker_registration import get_keys

from runcontract.transport import Station, breaker_of, workers_on
from runcontract.transport import station as module
from tests.lab.models import MailRun
from tests.support.lab import ended
from tests.support.wait import eventually

LANE = "rq:queue:default"


def lasting(redis_server) -> set[bytes]:
    """The keys that would stay for ever."""
    return {key for key in redis_server.scan_iter("*") if redis_server.ttl(key) == -1}


def registered(redis_server) -> int:
    return len(get_keys(connection=redis_server))


def values_in(redis_server) -> list[bytes]:
    """All that lies in Redis, but not the keys."""
    found: list[bytes] = []
    for key in redis_server.scan_iter("*"):
        kind = redis_server.type(key)
        if kind == b"string":
            found.append(redis_server.get(key))
        elif kind == b"hash":
            found += redis_server.hvals(key)
        elif kind == b"set":
            found += redis_server.smembers(key)
        else:
            assert kind == b"list"
            found += redis_server.lrange(key, 0, -1)
    return found


def station(found: list, done: list | None = None, *lanes: str) -> Station:
    """One that finds these runs, and then stops."""

    def next_run(burst: bool) -> object:
        if found:
            return found.pop(0)
        raise StopIteration

    performed = [] if done is None else done
    return Station(
        lanes or ["default"], name="host-1", next_run=next_run, perform_run=performed.append
    )


@pytest.mark.parametrize("burst", [True, False])
def test_station_performs_what_comes_until_it_is_to_stop(redis_server, burst: bool) -> None:
    done: list = []
    one = station([("default", "a"), None, ("default", "b")], done)
    one.work(burst=burst, logging_level="WARNING")
    assert done == (["a"] if burst else ["a", "b"])
    assert lasting(redis_server) == set()
    assert registered(redis_server) == 0


def test_station_registers_again_after_redis_lost_everything(redis_server) -> None:
    one = station([])
    one.bootstrap()
    assert (registered(redis_server), workers_on("default")) == (1, 1)
    redis_server.flushall()
    one.heartbeat()
    assert registered(redis_server) == 0  # not at each of its heartbeats
    one._registered_at -= module.REGISTER_EVERY
    one.heartbeat()
    assert (registered(redis_server), workers_on("default")) == (1, 1)
    shown = Worker.all(connection=redis_server)[0]
    assert (shown.name, shown.queue_names(), shown.pid) == ("host-1", ["default"], one.pid)


def test_station_outlives_a_redis_that_fails(redis_server) -> None:
    done: list = []
    breaker_of("default").failed(OSError())
    station([("default", "a")], done).work(burst=False, logging_level="WARNING")
    assert done == ["a"]
    assert list(redis_server.scan_iter("*")) == []


def test_station_tries_to_register_again_when_redis_refused(redis_server) -> None:
    one = station([])
    redis_server.set("rq:workers", "no set")
    one.bootstrap()
    assert breaker_of("default").open
    breaker_of("default")._closed_until = 0.0
    redis_server.delete("rq:workers")
    one.heartbeat()
    assert registered(redis_server) == 1


def test_set_of_queues_that_was_there_before_is_left_as_it_was(redis_server) -> None:
    redis_server.sadd("rq:queues", "rq:queue:other")
    station([], None, "default", "bulk").work(logging_level="WARNING")
    assert redis_server.scard("rq:queues") == 3
    assert lasting(redis_server) == {b"rq:queues"}


def test_rq_has_no_say_over_a_station(redis_server) -> None:
    redis_server.set("rq:suspended", 1)
    done: list = []
    one = station([("default", "a")], done)
    one.request_stop(15, None)
    one.work(logging_level="WARNING")
    assert done == ["a"]
    with pytest.raises(StopRequested):
        one.dequeue_job_and_maintain_ttl(None)


pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])


@pytest.mark.chaos
def test_workers_leave_nothing_behind_whether_they_are_stopped_or_killed(
    redis_server, start_worker, start_scheduler
) -> None:
    killed = start_worker("default", "--processes", "2")
    eventually(lambda: registered(redis_server) == 2)
    killed.kill()
    eventually(lambda: not killed.children())
    for key in get_keys(connection=redis_server):
        assert 0 < redis_server.ttl(key) <= 60
        redis_server.delete(key)  # what their time to live would do in a minute
    worker, scheduler = start_worker("default", "bulk"), start_scheduler()
    for number in range(20):
        MailRun.objects.enqueue(job_id=f"m{number}", lane="bulk" if number % 2 else None)
    for run in MailRun.objects.all():
        ended(run)
    assert registered(redis_server) == 1
    for value in values_in(redis_server):
        with pytest.raises((pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError)):
            pickle.loads(value)
    worker.stop()
    scheduler.stop()
    assert lasting(redis_server) == set()
    assert not redis_server.exists(LANE, "rq:queue:bulk")
