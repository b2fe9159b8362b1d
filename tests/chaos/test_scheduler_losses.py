"""Redis loses everything or half of it, is away or hangs: each run is executed once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from django.db import transaction
from django.db.models import Count

from runcontract.transport import breaker_of
from tests.lab.models import Effect, MailRun, Order
from tests.support.processes import Command
from tests.support.servers import hanging, out_of_memory, read_only, redis_client
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])

LANE = "rq:queue:default"


@contextmanager
def paused(worker: Command) -> Iterator[None]:
    """A worker that takes nothing for a moment."""
    worker.pause()
    try:
        yield
    finally:
        worker.resume()


def enqueue(label: str, count: int) -> None:
    rows = [
        {"job_id": f"{label}{n:03}", "task": "echo", "args": {"text": f"{label} {n}"}}
        for n in range(count)
    ]
    assert all(MailRun.objects.bulk_enqueue(rows))


def all_ran_once(count: int, timeout: float = 40) -> None:
    """Every run succeeded, with its own arguments, and was executed exactly once."""

    def done() -> bool:
        return MailRun.objects.filter(state="succeeded").count() == count

    eventually(done, timeout, every=0.2)
    often = Effect.objects.values("job_id").annotate(n=Count("*")).filter(n__gt=1)
    assert not often.exists(), list(often)
    assert Effect.objects.count() == count
    for run in MailRun.objects.exclude(note=""):
        assert run.note == run.args["text"]


def restore(client: redis.Redis, dump: bytes) -> None:
    client.delete(LANE)
    client.restore(LANE, 0, dump)


def test_every_loss_of_redis_costs_time_and_never_a_run(
    redis_server, valkey, start_worker, start_scheduler
) -> None:
    worker, scheduler = start_worker("default", "--processes", "2"), start_scheduler()
    pids = worker.pid, scheduler.pid, worker.children()
    enqueue("dump", 100)
    dump = eventually(lambda: redis_server.dump(LANE))
    all_ran_once(100)
    blows: dict[str, Any] = {
        "flushed": redis_server.flushall,
        "list gone": lambda: redis_server.delete(LANE),
        "no list": lambda: (redis_server.delete(LANE), redis_server.set(LANE, "no list")),
        "swapped": lambda: redis_server.swapdb(0, 1),
        "old dump": lambda: restore(redis_server, dump),
        "registries": lambda: redis_server.delete("rq:workers", "rq:queues", "rq:workers:default"),
        "restarted empty": lambda: (valkey.stop(), valkey.wipe(), valkey.start()),
    }
    count = 100
    for label, blow in blows.items():
        with paused(worker):
            enqueue(label, 300 if label == "flushed" else 30)
            blow()
        count += 300 if label == "flushed" else 30
        all_ran_once(count)
    assert (worker.pid, scheduler.pid, worker.children()) == pids
    worker.stop()
    scheduler.stop()
    with redis_client() as client:
        assert not client.exists(LANE)
        client.flushall()


@contextmanager
def down(valkey: Any) -> Iterator[None]:
    valkey.stop()
    yield
    valkey.start()


def test_enqueue_while_redis_is_in_trouble_costs_the_caller_nothing_and_runs_once(
    redis_server, valkey, start_worker, start_scheduler
) -> None:
    worker, scheduler = start_worker("default"), start_scheduler()
    troubles = {
        "readonly": lambda: read_only(redis_server),
        "oom": lambda: out_of_memory(redis_server),
        "hangs": lambda: hanging(valkey),
        "down": lambda: down(valkey),
    }
    for count, (label, trouble) in enumerate(troubles.items(), 1):
        hooks: list[str] = []
        breaker_of("default")._closed_until = 0.0
        with trouble():
            begun = time.monotonic()
            with transaction.atomic():
                order = Order.objects.create(name=label)
                asked = {"task": "echo", "args": {"text": order.name}}
                first = MailRun.objects.enqueue(job_id=label, **asked)
                transaction.on_commit(lambda: hooks.append("called"))
            assert time.monotonic() - begun < 1.0
            again = MailRun.objects.enqueue(job_id=label)
            assert (first.created, again.reason) == (True, "duplicate")
            assert again.run.pk == first.run.pk
            assert hooks == ["called"]
        all_ran_once(count)
    for process in (worker, scheduler):
        assert process.log.count("Redis does not answer") <= 2 * len(troubles)
        process.stop()


def test_database_that_is_away_does_not_hold_up_the_other(redis_server, start_scheduler) -> None:
    schedules = [
        {"name": "away", "model": "OtherRun", "cron": "* * * * * *"},
        {"name": "here", "model": "MailRun", "cron": "* * * * * *"},
    ]
    env = {"RUNCONTRACT_TEST_JOBS_HOST": "127.0.0.1"}
    scheduler = start_scheduler(schedules=schedules, env=env)
    MailRun.objects.bulk_create([MailRun(job_id=f"u{n}", lane="bulk") for n in range(50)])
    eventually(lambda: redis_server.llen("rq:queue:bulk") == 50)
    eventually(lambda: MailRun.objects.filter(job_id__startswith="here").count() > 6, 20)
    assert redis_server.llen("rq:queue:bulk") == 50
    assert scheduler.log.count("Database jobs is away") == 1
    scheduler.stop()
