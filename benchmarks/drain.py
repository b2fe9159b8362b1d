"""Drain no-op runs with one worker process, and count what it costs.

    python -m benchmarks.drain --runs 5000

Starts servers from pip unless DATABASE_URL and REDIS_URL are set (then their contents are lost).
Prints the Redis commands and the commits of a run, counted from the worker's start, what is left
in Redis, and the rate beside that of RQ's SimpleWorker on the same servers in the same minute.
Machines are noisy: only the ratio says something.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import redis

from runcontract.testing.servers import Postgres, Valkey

ROOT = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def servers() -> Iterator[dict[str, str]]:
    if "DATABASE_URL" in os.environ and "REDIS_URL" in os.environ:
        yield dict(os.environ)
        return
    with tempfile.TemporaryDirectory(prefix="rcb-") as folder:
        Path(folder).chmod(0o755)
        base = Path(folder, "s")
        with Postgres(base) as postgres, Valkey(base) as valkey:
            yield {**os.environ, "DATABASE_URL": postgres.url, "REDIS_URL": valkey.url}


def setup(runs: int) -> None:
    import django

    django.setup()
    from django.core.management import call_command

    from benchmarks.noop.models import NoopRun

    call_command("migrate", verbosity=0)
    NoopRun.objects.all().delete()
    begun = time.monotonic()
    NoopRun.objects.bulk_enqueue({"job_id": f"noop-{number}"} for number in range(runs))
    print(f"bulk_enqueue: {runs / (time.monotonic() - begun):,.0f} runs/s")


def commands(client: redis.Redis) -> int:
    stats: Any = client.info("commandstats")
    return sum(value["calls"] for name, value in stats.items() if name != "cmdstat_info")


def commits(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def drain(environment: dict[str, str], runs: int) -> float:
    """Runs a second of `runworker`, from its first claim to its last settle."""
    client = redis.Redis.from_url(environment["REDIS_URL"])
    before = {key: client.ttl(key) for key in client.scan_iter()}
    commands_before, commits_before = commands(client), commits(environment["DATABASE_URL"])
    command = [sys.executable, "manage.py", "runworker", "default", "--burst", "-v", "0"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    time.sleep(1.5)  # Postgres reports its statistics with a delay
    per_run = (commands(client) - commands_before) / runs
    committed = (commits(environment["DATABASE_URL"]) - commits_before) / runs
    with psycopg.connect(environment["DATABASE_URL"]) as connection:
        row = connection.execute(
            "SELECT count(*), extract(epoch FROM max(finished_at) - min(started_at)) "
            "FROM noop_nooprun WHERE state = 'succeeded'"
        ).fetchone()
    assert row is not None
    left = [key for key in client.scan_iter() if key not in before and client.ttl(key) == -1]
    print(
        f"succeeded: {row[0]}; Redis commands a run: {per_run:.3f}; commits a run: {committed:.3f}"
    )
    print(f"keys left without a TTL that were not there before: {left or 'none'}")
    return runs / float(row[1])


RQ_DRAIN = """
import os, time, redis
from rq import Queue, SimpleWorker
connection = redis.Redis.from_url(os.environ["REDIS_URL"])
queue = Queue("bench", connection=connection)
queue.enqueue_many([Queue.prepare_data("benchmarks.noop_rq.noop") for _ in range({runs})])
worker = SimpleWorker([queue], connection=connection)
begun = time.monotonic()
worker.work(burst=True, logging_level="ERROR")
print({runs} / (time.monotonic() - begun))
"""


def drain_rq(environment: dict[str, str], runs: int) -> float:
    code = RQ_DRAIN.format(runs=runs)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5000)
    runs = parser.parse_args().runs
    with servers() as environment:
        environment["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
        os.environ.update(environment)
        setup(runs)
        ours = drain(environment, runs)
        theirs = drain_rq(environment, min(runs, 2000))
    print(f"runworker, one process: {ours:,.0f} runs/s, each journalled in Postgres")
    print(f"rq SimpleWorker:        {theirs:,.0f} jobs/s, ratio {ours / theirs:.1f}")


if __name__ == "__main__":
    main()
