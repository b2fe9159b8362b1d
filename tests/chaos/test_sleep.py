"""A worker that was declared dead wakes up (H02), or only drains slowly (H04)."""

import signal

import pytest

from tests.lab.models import AgainRun, MailRun
from tests.support.lab import at_work, canary, effects, ended, executed_once, in_state
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])


def test_worker_that_slept_through_its_own_reaping_writes_nothing(
    redis_server, start_worker, start_scheduler
) -> None:
    def again(job_id: str, task: str, **args: object) -> AgainRun:
        return AgainRun.objects.enqueue(job_id=job_id, task=task, args=args).run

    running = again("still running elsewhere", "nap", n=6)
    done = again("done elsewhere", "nap_once", n=6)
    raising = again("raises here, succeeds elsewhere", "fail_on", attempts=[1], n=2)
    nobody = MailRun.objects.enqueue(job_id="nobody's", task="nap", args={"n": 2}).run
    sleeper = start_worker("default", "--processes", "4")
    for run in (running, done, raising, nobody):
        at_work(run)
    sleeper.pause()
    scheduler = start_scheduler(settings={"BACKOFF_CAP": 0.1})
    in_state(running, "queued", timeout=20)
    assert ended(nobody).failure == "stale"
    other = start_worker("default", "--processes", "3")
    assert ended(done).state == "succeeded"
    assert ended(raising).state == "succeeded"
    at_work(running)
    before = {run.pk: _row(run) for run in (done, raising)} | {nobody.pk: _row(nobody)}
    sleeper.resume()
    sleeper.wait_for("lost its lease|not ours any more")
    assert ended(running).state == "succeeded"
    for run in (running, done, raising):
        assert run.attempts == 2
        assert [line.attempt for line in effects(run)] == [1, 2]
        pids = [line.pid for line in effects(run)]
        assert f"-{pids[1]}-" in run.worker or run.worker == ""
    for run in (done, raising, nobody):
        assert _row(run) == before[run.pk]
    other.stop()
    canary(sleeper)
    sleeper.stop()
    scheduler.stop()


def _row(run: object) -> dict[str, object]:
    return type(run).objects.filter(pk=run.pk).values().get()  # type: ignore[attr-defined]


def test_pulse_goes_on_while_a_worker_drains_for_longer_than_the_stale_limit(
    redis_server, start_worker, start_scheduler
) -> None:
    run = MailRun.objects.enqueue(job_id="long", task="nap", args={"n": 7}).run
    scheduler = start_scheduler()
    worker = start_worker("default", "--drain-timeout", "60")
    at_work(run)
    worker.send(signal.SIGTERM)
    beats = set()

    def over() -> bool:
        run.refresh_from_db()
        beats.add(run.heartbeat_at)
        return run.state == "succeeded"

    eventually(over, 20)
    assert len(beats) > 7
    assert worker.wait() == 0
    assert executed_once(run)
    scheduler.stop()


def test_run_that_locks_its_own_row_for_long_is_not_reaped_when_it_lets_go(
    redis_server, start_worker, start_scheduler
) -> None:
    """Its pulse could not be written meanwhile, and nobody may believe it dead for that."""
    args = {"n": 8.5, "after": 2}
    run = MailRun.objects.enqueue(job_id="locks", task="lock_own_row", args=args).run
    worker = start_worker("default", settings={"STALE_AFTER": 4, "HEARTBEAT": 1})
    scheduler = start_scheduler(settings={"STALE_AFTER": 4, "HEARTBEAT": 0.1})
    assert ended(run).state == "succeeded", run.last_error
    assert executed_once(run)
    worker.stop()
    scheduler.stop()
