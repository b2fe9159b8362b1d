"""Signals: to the group, twice, to a child, the wrong ones, while idle (H18)."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.lab.models import AtomicRun, MailRun
from tests.support.lab import at_work, canary, ended, executed_once, in_state
from tests.support.processes import is_alive
from tests.support.wait import always, eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])


def nap(job_id: str, seconds: float, model: type = MailRun) -> MailRun:
    enqueued = model.objects.enqueue(
        job_id=job_id, task="nap", args={"n": seconds}, lock_key=job_id
    )
    return enqueued.run


def waiting(job_id: str, path: Path) -> MailRun:
    args = {"path": str(path)}
    return MailRun.objects.enqueue(job_id=job_id, task="wait_for_file", args=args).run


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_stop_to_the_whole_group_lets_the_job_finish(
    redis_server, start_worker, tmp_path, number
) -> None:
    run, next_one = waiting("group", tmp_path / "go"), nap("not begun", 0.1)
    worker = start_worker("default", settings={"DRAIN_TIMEOUT": 30})
    at_work(run)
    for harmless in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        worker.send_to_group(harmless)
        for child in worker.children():
            os.kill(child, harmless)
    worker.send_to_group(number)
    worker.wait_for("Draining")
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert in_state(run, "succeeded")
    assert executed_once(run)
    assert in_state(next_one, "queued").lease == 0
    assert redis_server.llen("rq:queue:default") == 1


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_second_stop_gives_everything_back_within_seconds(
    redis_server, start_worker, second
) -> None:
    runs = [nap("twice", 60), nap("atomic", 60, AtomicRun)]
    worker = start_worker("default", "--processes", "2", settings={"DRAIN_TIMEOUT": 60})
    for run in runs:
        at_work(run)
    begun = time.monotonic()
    worker.send(signal.SIGTERM)
    worker.wait_for("Draining")
    worker.send(second)
    assert worker.wait(10) == 0
    assert time.monotonic() - begun < 6
    for run in runs:
        assert (in_state(run, "queued").attempts, run.failure) == (0, "")
        assert run.stats["given_back"] == 1
    assert "Traceback" not in worker.log


def test_stop_of_a_child_alone_only_replaces_it(redis_server, start_worker, tmp_path) -> None:
    run = waiting("child only", tmp_path / "go")
    worker = start_worker("default")
    at_work(run)
    (child,) = worker.children()
    os.kill(child, signal.SIGTERM)
    (tmp_path / "go").touch()
    assert ended(run).state == "succeeded"
    assert executed_once(run)
    eventually(lambda: not is_alive(child))
    canary(worker)
    assert worker.children() != [child]
    begun = time.monotonic()
    worker.stop()
    assert time.monotonic() - begun < 5


def test_stop_during_the_start_loses_nothing(redis_server, start) -> None:
    runs = [nap(f"early {n}", 0.05) for n in range(6)]
    for delay in (0.05, 0.6, 0.9, 1.2):
        worker = start("runworker", "default")
        time.sleep(delay)  # the moment is what is tested
        worker.send(signal.SIGTERM)
        assert worker.wait(10) in (0, -signal.SIGTERM)
    for run in runs:
        run.refresh_from_db()
        assert run.state in ("queued", "succeeded")
        assert run.attempts <= 1


def test_job_that_does_not_end_in_time_is_given_back_without_an_attempt(
    redis_server, start_worker
) -> None:
    run = nap("too long", 60)
    worker = start_worker("default", settings={"DRAIN_TIMEOUT": 1})
    at_work(run)
    worker.send(signal.SIGTERM)
    always(lambda: MailRun.objects.get(pk=run.pk).state == "running", 0.5)
    assert worker.wait(6) == 0
    assert (in_state(run, "queued").attempts, run.lease, run.next_retry_at) == (0, 2, None)
    assert not MailRun.objects.enqueue(job_id="other", lock_key=run.lock_key)
    assert redis_server.lrange("rq:queue:default", 0, -1) == [f"lab-mailrun-{run.pk}-2".encode()]
    again = start_worker("default")
    at_work(run)
    MailRun.objects.get(pk=run.pk).cancel()
    assert ended(run).failure == "cancelled"
    again.stop()
