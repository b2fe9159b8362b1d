"""Redis forgets, crashes, hangs, or says what nobody has sent (H21, H22, H25)."""

import os
import pickle
import signal

import pytest
from django.db import connection

from tests.lab.models import MailRun
from tests.support.lab import at_work, canary, ended, executed_once, in_state
from tests.support.servers import hanging
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])


def test_running_jobs_do_not_notice_that_redis_forgot_everything(
    redis_server, start_worker, start_scheduler, tmp_path
) -> None:
    go = tmp_path / "go"
    args = {"path": str(go)}
    running = [
        MailRun.objects.enqueue(job_id=f"running {n}", task="wait_for_file", args=args).run
        for n in range(2)
    ]
    worker = start_worker("default", "--processes", "2")
    for run in running:
        at_work(run)
    queued = [MailRun.objects.enqueue(job_id=f"queued {n}").run for n in range(20)]
    redis_server.flushall()
    go.touch()
    scheduler = start_scheduler()
    for run in running + queued:
        assert ended(run).state == "succeeded"
        assert executed_once(run)
    worker.stop()
    scheduler.stop()


def test_worker_goes_on_without_redis_and_returns_to_it(valkey, start_worker, tmp_path) -> None:
    """Crashed while busy, enqueued meanwhile, back; then frozen while idle, and back."""
    args = {"path": str(tmp_path / "go")}
    run = MailRun.objects.enqueue(job_id="busy", task="wait_for_file", args=args).run
    worker = start_worker("default")
    at_work(run)
    children = worker.children()
    valkey.crash()
    (tmp_path / "go").touch()
    later = [MailRun.objects.enqueue(job_id=f"later {n}").run for n in range(3)]
    for one in (run, *later):
        assert ended(one).state == "succeeded"
        assert executed_once(one)
    valkey.start()
    worker.wait_for("Redis answers again", 20)
    with hanging(valkey):
        frozen = MailRun.objects.enqueue(job_id="frozen").run
        assert ended(frozen, 30).state == "succeeded"
    eventually(lambda: worker.log.count("Redis answers again") == 2, 30)
    canary(worker)
    assert worker.children() == children
    # One line when it goes and one when it comes back, not one at each try.
    assert worker.log.count("Redis does not answer") == 2
    worker.stop()


def test_worker_stops_in_time_while_redis_hangs(valkey, start_worker) -> None:
    worker = start_worker("default")
    with hanging(valkey):
        worker.send(signal.SIGTERM)
        assert worker.wait(13) == 0


def test_cut_redis_connections_are_made_anew(redis_server, start_worker) -> None:
    worker = start_worker("default")
    for _ in range(3):
        redis_server.client_kill_filter(_type="normal", skipme=True)
        canary(worker)
    worker.stop()


def test_forged_messages_are_dropped_with_a_line_each_and_nothing_is_called(
    redis_server, start_worker, tmp_path
) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path / 'pwned'}",)

    waiting = MailRun.objects.enqueue(job_id="waiting", lane="interactive").run
    forged: list[bytes] = [
        b"\x00\xff garbage",
        b"x" * 5_000_000,
        pickle.dumps(Evil()),
        b"lab-nothing-1-0",
        b"auth-user-1-0",
        b"lab-mailrun-abc-0",
        b"lab-mailrun-0123456789abcdef0123456789abcdef-0",
        b"",
        b"\n2026-01-01 ERROR forged line",
    ]
    harmless = [f"lab-mailrun-{waiting.pk}-7".encode(), b"lab-mailrun-99999999-0"]
    far = b"lab-mailrun-99999999999999999999-9999999999999999999"
    job = f"rq:job:lab-mailrun-{waiting.pk}-0"
    redis_server.hset(job, mapping={"data": pickle.dumps(Evil()), "origin": "default"})
    redis_server.rpush("rq:queue:default", *forged, *harmless, far)
    worker = start_worker("default")
    (child,) = worker.children()
    canary(worker)
    assert worker.log.count("Dropped a message that names no run") >= len(forged)
    assert "\n2026-01-01 ERROR forged line" not in worker.log
    assert not (tmp_path / "pwned").exists()
    assert in_state(waiting, "queued").lease == 0
    assert worker.children() == [child]
    assert len(worker.log) < 20_000
    redis_server.delete(job)
    worker.stop()


def test_table_that_is_missing_holds_up_no_other_while_the_journal_is_polled(
    valkey, start_worker
) -> None:
    """A new model whose migration was not applied yet, with Redis away."""
    valkey.stop()
    rename = "ALTER TABLE {} RENAME TO {}"
    with connection.cursor() as cursor:
        cursor.execute(rename.format("lab_passrun", "lab_gone"))
    try:
        worker = start_worker("default")
        children = worker.children()
        for _ in range(3):
            canary(worker)
        assert worker.children() == children
        assert worker.log.count("lab.passrun: nothing can be claimed") == 1
        assert "Traceback" not in worker.log
        worker.stop()
    finally:
        with connection.cursor() as cursor:
            cursor.execute(rename.format("lab_gone", "lab_passrun"))
