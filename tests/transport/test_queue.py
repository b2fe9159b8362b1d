"""RQ's own tools on our lanes: they show, they take nothing out, and they load nothing."""

import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django_rq import get_queue
from django_rq.settings import get_queues_list
from rq import Queue, Worker
from rq.job import Job

from runcontract.lifecycle.sweep import sweep_unsent
from runcontract.lifecycle.table import table_of
from runcontract.transport import RunQueue
from tests.lab.models import MailRun
from tests.settings import ROOT
from tests.support.lab import ended, executed_once
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])

LANE = "rq:queue:default"


class Exploit:
    """A pickle that leaves a file where it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (os.fspath(self.path),)


@pytest.fixture
def pwned(tmp_path):
    """Where an exploit leaves its mark; there is none at the end."""
    path = tmp_path / "pwned"
    yield path
    assert not path.exists()


@pytest.fixture
def admin(client):
    client.force_login(User.objects.create_superuser("root"))
    return client


def queued(count: int) -> list[MailRun]:
    runs = MailRun.objects.bulk_create([MailRun(job_id=f"q{n}") for n in range(count)])
    sweep_unsent(table_of(MailRun))
    return runs


def index_of(lane: str) -> int:
    """Its number in django-rq's addresses."""
    return [queue["name"] for queue in get_queues_list()].index(lane)


def pages() -> list[str]:
    names = ["jobs", "queue_details", "workers", "failed_jobs", "started_jobs", "finished_jobs"]
    names += ["deferred_jobs", "scheduled_jobs"]
    return [
        reverse("django_rq:home"),
        reverse("django_rq:home_json"),
        reverse("admin:django_rq_dashboard_changelist"),
        *[reverse(f"django_rq:{name}", args=[index]) for name in names for index in range(3)],
        f"{reverse('django_rq:jobs', args=[index_of('default')])}?page=2",
    ]


def test_queue_of_a_lane_is_ours() -> None:
    assert isinstance(get_queue("default"), RunQueue)


def test_pages_of_django_rq_take_nothing_out_of_a_backlog(admin, redis_server) -> None:
    runs = queued(250)
    before = redis_server.lrange(LANE, 0, -1)
    for _ in range(2):
        for page in pages():
            answer = admin.get(page)
            assert answer.status_code == 200, page
    listed = admin.get(reverse("django_rq:jobs", args=[index_of("default")])).content.decode()
    assert f"lab-mailrun-{runs[0].pk}-0" in listed
    assert f"lab.mailrun {runs[0].pk}, lease 0" in listed
    assert "250 jobs" in listed
    assert redis_server.lrange(LANE, 0, -1) == before


def test_page_of_one_message_is_not_found_and_takes_nothing_out(admin, redis_server) -> None:
    run = queued(3)[1]
    url = reverse("django_rq:job_detail", args=[index_of("default"), f"lab-mailrun-{run.pk}-0"])
    assert admin.get(url).status_code == 404
    assert redis_server.llen(LANE) == 3


def test_queue_that_somebody_empties_is_filled_again(
    admin, redis_server, start_worker, start_scheduler
) -> None:
    runs = queued(5)
    admin.post(reverse("django_rq:clear", args=[index_of("default")]), {"post": "yes"})
    assert redis_server.llen(LANE) == 0
    start_scheduler()
    start_worker("default")
    for run in runs:
        assert ended(run).state == "succeeded"
        assert executed_once(run)


def test_rqs_own_look_at_a_lane_takes_nothing_out(redis_server) -> None:
    queued(20)
    before = redis_server.lrange(LANE, 0, -1)
    queue = get_queue("default")
    assert [queue.fetch_job(job_id) for job_id in queue.job_ids] == [None] * 20
    assert len(queue.jobs) == len(queue.get_jobs(0, 50)) == queue.count == 20
    assert [job.id for job in queue.get_jobs(5, 2)] == [m.decode() for m in before[5:7]]
    assert queue.get_jobs(0, 0) == []
    assert {job.get_status() for job in queue.jobs} == {"queued"}
    queue.compact()
    assert redis_server.lrange(LANE, 0, -1) == before


def test_messages_that_are_none_are_shown_or_left_out_and_stay(redis_server) -> None:
    redis_server.rpush(LANE, "not-a-run", b"\xff\xfe", "with blanks", "x" * 100_000)
    queue = get_queue("default")
    assert [job.description for job in queue.jobs][:1] == [
        "Not a run: a worker will drop this message."
    ]
    assert redis_server.llen(LANE) == 4


def test_rq_info_shows_lanes_and_workers(redis_server, start_worker) -> None:
    queued(0)
    worker = start_worker("default", "bulk", "--processes", "2")
    url = redis_server.connection_pool.connection_kwargs["path"]

    def shown() -> str:
        command = [Path(sys.executable).with_name("rq"), "info", "--url", f"unix://{url}?db=0"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        return done.stdout

    eventually(lambda: "2 workers" in shown(), 20, every=0.5)
    text = shown()
    assert "default" in text
    assert "bulk" in text
    worker.stop()
    assert "0 workers" in shown()


# A pickle in the queue.


def forge(redis_server, pwned: Path) -> list[str]:
    """Pickles, a bomb and nested lists wherever RQ might read them."""
    evil = pickle.dumps(Exploit(pwned))
    bomb = zlib.compress(b"0" * 50_000_000, 9)
    nested = b"[" * 10_000
    ids = []
    for number, data in enumerate([evil, zlib.compress(evil), bomb, nested]):
        job_id = f"lab-mailrun-{number + 1}-0" if number % 2 else f"forged{number}"
        hash_ = dict.fromkeys(["data", "result", "meta", "exc_info", "args"], data)
        redis_server.hset(f"rq:job:{job_id}", mapping={**hash_, "origin": "default"})
        ids.append(job_id)
    for message in (*ids, evil, bomb[:10_000], nested):
        redis_server.rpush(LANE, message)
    redis_server.hset("rq:worker:evil", mapping={"queues": "default", "state": evil, "meta": evil})
    redis_server.sadd("rq:workers", "rq:worker:evil")
    redis_server.sadd("rq:workers:default", "rq:worker:evil")
    redis_server.set("runcontract:epoch", evil)
    redis_server.set("runcontract:held:lab.mailrun:good", evil)
    return ids


def test_the_exploit_of_these_tests_works(tmp_path) -> None:
    pickle.loads(pickle.dumps(Exploit(tmp_path / "pwned")))
    assert (tmp_path / "pwned").exists()


def test_forged_hash_is_never_loaded_by_the_pages(admin, redis_server, pwned) -> None:
    ids = forge(redis_server, pwned)
    redis_server.delete("rq:worker:evil")
    before = redis_server.llen(LANE)
    redis_server.lrem(LANE, 0, pickle.dumps(Exploit(pwned)))  # django-rq decodes head and tail
    for page in pages():
        assert admin.get(page).status_code == 200, page
    # The page of one job is django-rq's own and reads the hash, but as JSON.
    redis_server.hset(f"rq:job:{ids[0]}", "meta", pickle.dumps(Exploit(pwned)))
    admin.raise_request_exception = False
    page = reverse("django_rq:job_detail", args=[index_of("default"), ids[0]])
    assert admin.get(page).status_code in (200, 500)
    assert redis_server.llen(LANE) == before - 1


def test_forged_messages_are_dropped_by_worker_and_scheduler_and_others_run(
    redis_server, pwned, start_worker, start_scheduler
) -> None:
    forge(redis_server, pwned)
    worker, scheduler = start_worker("default"), start_scheduler()
    run = MailRun.objects.enqueue(job_id="good").run
    assert ended(run).state == "succeeded"
    assert executed_once(run)
    eventually(lambda: redis_server.llen(LANE) == 0)
    eventually(lambda: len(redis_server.get("runcontract:epoch") or b"") == 32)
    assert worker.log.count("Dropped a message") == 5  # of seven, two had an address
    for process in (worker, scheduler):
        process.stop()


def test_ordinary_rq_jobs_beside_the_lanes_are_as_before(redis_server) -> None:
    """Another queue of the same server, in RQ's own class."""
    queue = Queue("ordinary", connection=redis_server)
    job = queue.enqueue(len, "four")
    assert queue.fetch_job(job.id).args == ("four",)
    assert isinstance(job, Job)
    assert Worker.all(connection=redis_server) == []
