"""What must be true when everything has ended, each counted from where it can be seen."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import redis
from django.conf import settings
from django.db import connection
from django.db.models import Count, F

from demo_project.harvester.models import DeadLetter, Harvest, Source, harvested
from demo_project.knowledge.graph import graph_as_json
from demo_project.knowledge.models import CurationRun
from demo_project.notifications.audit import unaccounted

from . import witness
from .counts import consumers
from .directly import edges_among

PATIENCE = 10.0
"""Seconds that a worker may need to drop the messages of runs that have ended."""

OVERLAPPING = """
SELECT one.job_id, other.job_id FROM {table} one JOIN {table} other ON one.{key} < other.{key}
WHERE one.started_at < coalesce(other.finished_at, 'infinity')
  AND other.started_at < coalesce(one.finished_at, 'infinity')
"""


@dataclass(frozen=True)
class Check:
    """A claim, and what speaks against it; nothing does when it holds."""

    claim: str
    against: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Nothing speaks against it."""
        return not self.against


def everything(
    since: datetime, versions: Mapping[str, str], accepted: Mapping[str, int]
) -> list[Check]:
    """All checks of the demo.

    `versions` are what was installed when it began, by name; `accepted` is how often the mail
    server took each message-id.
    """
    return [
        Check("every installed distribution is listed", tuple(_unlisted(versions))),
        Check("each is harvested, or dead-lettered with its cause", tuple(_unsettled())),
        Check("the graph is what importlib.metadata says of what was harvested", tuple(_graph())),
        Check("one curation pass at a time", tuple(_overlapping())),
        Check(mails_claim(accepted), tuple(unaccounted(accepted, since))),
        Check("no run succeeded twice", tuple(_twice(since))),
        Check("no run was lost", tuple(_lost(since))),
        Check("no run is active", tuple(_active())),
        Check("no message is left in Redis", tuple(_messages())),
    ]


def mails_claim(accepted: Mapping[str, int]) -> str:
    """With the mail server's own count of what it took more than once."""
    twice = sum(times > 1 for times in accepted.values())
    told = f"{twice} of {len(accepted)} mails" if twice else f"none of {len(accepted)} mails"
    return f"no mail was delivered twice but where its worker was lost after the yes: {told}"


def _unlisted(versions: Mapping[str, str]) -> Iterator[str]:
    """What is installed and not listed, or the other way round."""
    listed = set(Source.objects.filter(listed=True).values_list("name", "version"))
    return (f"{name} {version}" for name, version in sorted(versions.items() ^ listed))


def _unsettled() -> Iterator[str]:
    done = set(
        Harvest.objects.filter(
            generation=F("source__generation"), version=F("source__version")
        ).values_list("source__name", flat=True)
    )
    letters = DeadLetter.objects.open().exclude(cause="")
    dead = set(letters.values_list("source__name", flat=True))
    for name in Source.objects.filter(listed=True).values_list("name", flat=True):
        if (name in done) == (name in dead):
            yield f"{name} is {'both' if name in dead else 'neither'}"


def _graph() -> Iterator[str]:
    graph = graph_as_json()
    curated = {(edge["source"], edge["target"]) for edge in graph["edges"]}
    names = {each.name for each in harvested()}
    for source, target in sorted(curated ^ edges_among(names)):
        word = "in" if (source, target) in curated else "not in"
        yield f"{source} → {target} is {word} the graph"
    known = {node["name"] for node in graph["nodes"] if node["version"]}
    yield from (f"{name} is in only one of the two" for name in sorted(known ^ names))


def _overlapping() -> Iterator[str]:
    table, key = CurationRun._meta.db_table, CurationRun._meta.pk.column
    with connection.cursor() as cursor:
        cursor.execute(OVERLAPPING.format(table=table, key=key))
        yield from (f"{one} and {other}" for one, other in cursor.fetchall())


def _twice(since: datetime) -> Iterator[str]:
    yield from witness.succeeded_twice()
    for model in consumers():
        table, succeeded = model._meta.db_table, model.objects.filter(state="succeeded")
        jobs = succeeded.values("job_id").annotate(times=Count("pk")).filter(times__gt=1)
        yield from (f"{table} {each['job_id']}" for each in jobs)
        told, seen = (
            succeeded.filter(finished_at__gte=since).count(),
            witness.arrivals(table, since),
        )
        if told != seen:
            yield f"{table} says {told} and the witness {seen}"


def _lost(since: datetime) -> Iterator[str]:
    """Each run whose birth the witness saw must be there; that it ended is another check's."""
    for model in consumers():
        yield from (f"{model._meta.db_table} {key}" for key in witness.lost(model, since))


def _active() -> Iterator[str]:
    for model in consumers():
        for run in model.objects.filter(finished_at=None)[:5]:
            yield f"{run.job_id} is {run.state}"


def _messages() -> Iterator[str]:
    """The lanes' lengths, once they had time to become empty."""
    end = time.monotonic() + PATIENCE
    while (left := lane_lengths()) and time.monotonic() < end:
        time.sleep(0.1)
    return (f"{count} in {lane}" for lane, count in left.items())


def lane_lengths() -> dict[str, int]:
    """How many messages each lane holds; empty lanes are left out."""
    lengths: dict[str, int] = {}
    for lane, config in settings.RQ_QUEUES.items():
        with redis.Redis.from_url(config["URL"], socket_timeout=5) as server:
            if count := int(server.llen(f"rq:queue:{lane}")):
                lengths[lane] = count
    return lengths
