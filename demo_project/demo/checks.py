"""What must be true when everything has ended, each counted from where it can be seen."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import redis
from django.conf import settings
from django.db.models import Count, F

from demo_project.harvester.models import DeadLetter, Harvest, Source

from . import witness
from .counts import consumers

PATIENCE = 10.0
"""Seconds that a worker may need to drop the messages of runs that have ended."""


@dataclass(frozen=True)
class Check:
    """A claim, and what speaks against it; nothing does when it holds."""

    claim: str
    against: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Nothing speaks against it."""
        return not self.against


def everything(since: datetime, versions: Mapping[str, str]) -> list[Check]:
    """All checks of the demo; `versions` are what was installed when it began, by name."""
    return [
        Check("every installed distribution is listed", tuple(_unlisted(versions))),
        Check("each is harvested, or dead-lettered with its cause", tuple(_unsettled())),
        Check("no run succeeded twice", tuple(_twice(since))),
        Check("no run is active", tuple(_active())),
        Check("no message is left in Redis", tuple(_messages())),
    ]


def _unlisted(versions: Mapping[str, str]) -> Iterator[str]:
    """What is installed and not listed, or the other way round."""
    listed = set(Source.objects.filter(listed=True).values_list("name", "version"))
    return (f"{name} {version}" for name, version in sorted(versions.items() ^ listed))


def _unsettled() -> Iterator[str]:
    harvested = set(
        Harvest.objects.filter(
            generation=F("source__generation"), version=F("source__version")
        ).values_list("source__name", flat=True)
    )
    letters = DeadLetter.objects.open().exclude(cause="")
    dead = set(letters.values_list("source__name", flat=True))
    for name in Source.objects.filter(listed=True).values_list("name", flat=True):
        if (name in harvested) == (name in dead):
            yield f"{name} is {'both' if name in dead else 'neither'}"


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
