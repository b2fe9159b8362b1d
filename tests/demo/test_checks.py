"""Each check of the demo can fail, and says what speaks against it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest
import redis
from django.db.models.functions import Now

from demo_project.demo import checks, witness
from demo_project.demo.counts import Meter, database_time
from demo_project.demo.progress import plain
from demo_project.harvester.models import DeadLetter, Harvest, HarvestRun, Source
from demo_project.knowledge.models import CurationRun
from demo_project.notifications.announce import notify

from .graphs import curate

pytestmark = pytest.mark.django_db

GRAPH = "the graph is what importlib.metadata says of what was harvested"
VERSIONS = {"a": "1.0", "b": "2.0", "c": "3.0"}


@pytest.fixture(autouse=True)
def since(redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> datetime:
    """All is as it should be: each of three distributions is harvested by a run of its own."""
    monkeypatch.setattr(checks, "PATIENCE", 0)
    witness.install()
    began = database_time()
    for name, version in VERSIONS.items():
        source = Source.objects.create(name=name, version=version)
        settle(enqueue(source), state="succeeded")
        Harvest.objects.create(
            source=source, generation=1, version=source.version, harvested_at=Now()
        )
    return began


def enqueue(source: Source, job_id: str = "") -> Any:
    return HarvestRun.objects.enqueue(
        job_id=job_id or f"harvest:{source.name}:1", source=source, generation=1
    ).run


def settle(run: Any, **values: Any) -> None:
    """As a worker does, less what no check looks at."""
    rows = type(run).objects.filter(pk=run.pk)
    rows.update(**values, finished_at=Now(), held_until=Now())


def against(
    since: datetime, accepted: Mapping[str, int] | None = None, *, curated: bool = True
) -> dict[str, tuple[str, ...]]:
    """What speaks against each claim that does not hold; after a pass, unless told otherwise."""
    if curated:
        curate()
    found = checks.everything(since, VERSIONS, accepted or {})
    return {check.claim: check.against for check in found if not check.holds}


def first() -> Source:
    return Source.objects.get(name="a")


def test_all_hold(since: datetime) -> None:
    assert against(since) == {}


def test_distribution_that_is_not_listed(since: datetime) -> None:
    Source.objects.filter(name="a").update(listed=False)
    (facts,) = against(since).values()
    assert facts == ("a 1.0",)


def test_distribution_that_is_neither_harvested_nor_dead(since: datetime) -> None:
    Harvest.objects.filter(source=first()).update(version="0.0.old")
    (facts,) = against(since).values()
    assert facts == ("a is neither",)


@pytest.mark.parametrize(("cause", "left"), [("404", "both"), ("", "")])
def test_dead_letter_counts_with_its_cause(since: datetime, cause: str, left: str) -> None:
    DeadLetter.objects.create(
        source=first(), job_id="j", failure="permanent", cause=cause, at=Now()
    )
    told = [fact for facts in against(since).values() for fact in facts]
    assert told == (["a is both"] if left else [])
    Harvest.objects.filter(source=first()).delete()
    told = [fact for facts in against(since).values() for fact in facts]
    assert told == ([] if cause else ["a is neither"])


def test_run_that_succeeds_twice_is_seen_by_the_witness(since: datetime) -> None:
    run = HarvestRun.objects.get(source=first())
    HarvestRun.objects.filter(pk=run.pk).update(
        state="queued", finished_at=None, held_until=None, released_at=None
    )
    settle(run, state="succeeded")
    (facts,) = against(since).values()
    assert facts == (f"harvest_runs {run.pk}", "harvest_runs says 3 and the witness 4")


def test_two_runs_of_one_job_that_succeeded(since: datetime) -> None:
    HarvestRun.objects.update(released_at=Now())
    settle(enqueue(first()), state="succeeded")
    (facts,) = against(since).values()
    assert facts == ("harvest_runs harvest:a:1",)


def test_active_run(since: datetime) -> None:
    enqueue(first(), "another")
    assert against(since)["no run is active"] == ("another is queued",)


def test_message_that_is_left(since: datetime, redis_server: redis.Redis) -> None:
    redis_server.rpush("rq:queue:bulk", "left")
    (facts,) = against(since).values()
    assert facts == ("1 in bulk",)


def test_run_whose_row_is_gone(since: datetime) -> None:
    run = enqueue(first(), "soon gone")
    HarvestRun.objects.filter(pk=run.pk).delete()
    (facts,) = against(since).values()
    assert facts == (f"harvest_runs {run.pk}",)


def test_graph_that_is_not_what_is_installed(since: datetime) -> None:
    curate()
    Harvest.objects.filter(source=first()).update(requires_dist=["b"])
    curate()
    assert against(since, curated=False) == {GRAPH: ("a → b is in the graph",)}
    Harvest.objects.filter(source=first()).delete()
    assert "a is in only one of the two" in against(since, curated=False)[GRAPH]


def test_two_passes_at_a_time(since: datetime) -> None:
    early, late = (CurationRun.objects.enqueue(job_id=name).run for name in ("early", "late"))
    for run, began in ((early, "2999-01-01T00:00Z"), (late, "2999-01-01T00:01Z")):
        settle(run, state="succeeded", started_at=began)
    ends = {early.pk: "2999-01-01T00:02Z", late.pk: "2999-01-01T00:03Z"}
    for pk, end in ends.items():
        CurationRun.objects.filter(pk=pk).update(finished_at=end, held_until=end)
    assert against(since) == {"one curation pass at a time": ("early and late",)}
    CurationRun.objects.filter(pk=early.pk).update(finished_at="2999-01-01T00:00:59Z")
    assert against(since) == {}


def test_mail_that_was_taken_twice_from_a_worker_that_lived(since: datetime) -> None:
    delivery = notify("once", "ada@example.org", "Now", "It is born.").run
    settle(delivery, state="succeeded")
    assert against(since, {delivery.message_id: 1}) == {}
    ((claim, facts),) = against(since, {delivery.message_id: 2}).items()
    assert facts == ("notify:once was accepted 2 times, 0 interruptions",)
    assert claim.endswith("1 of 1 mails")
    type(delivery).objects.update(stats={"lost": 1})
    assert against(since, {delivery.message_id: 2}) == {}


def test_plain_line_counts_where_the_runs_are(since: datetime) -> None:
    enqueue(first(), "now")
    later = enqueue(first(), "later")
    HarvestRun.objects.filter(pk=later.pk).update(
        next_retry_at="2999-01-01T00:00Z", stats={"lost": 2}
    )
    assert plain(Meter(since).read()) == (
        "1 queued, 1 waiting, 0 running, 3 succeeded, 0 failed, 2 lost workers, 0 dead letters"
    )
