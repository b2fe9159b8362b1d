"""How far things are, read from the journal."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Count, IntegerField, Q, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Now

from demo_project.agents.models import NewestAnswer
from demo_project.harvester.models import DeadLetter
from demo_project.notifications.models import Delivery
from runcontract.models import RetryContract, RunContract
from runcontract.registry import run_models

LATELY = 10.0
"""Seconds over which the throughput is measured."""


@dataclass(frozen=True)
class Counts:
    """The runs of one model that are active or ended since the demo began."""

    app: str
    name: str
    queued: int
    waiting: int
    running: int
    succeeded: int
    failed: int
    lost: int

    @property
    def active(self) -> int:
        """Not at their end."""
        return self.queued + self.waiting + self.running

    @property
    def ended(self) -> int:
        """At their end."""
        return self.succeeded + self.failed


@dataclass(frozen=True)
class Snapshot:
    """Everything that the terminal shows."""

    runs: tuple[Counts, ...]
    dead_letters: int
    answers: int
    not_delivered: int
    per_second: float

    @property
    def active(self) -> int:
        """Runs that are not at their end."""
        return sum(each.active for each in self.runs)

    @property
    def ended(self) -> int:
        """Runs that are at their end."""
        return sum(each.ended for each in self.runs)

    @property
    def lost(self) -> int:
        """How often a worker was lost."""
        return sum(each.lost for each in self.runs)


def consumers() -> list[type[RunContract]]:
    """The run models of this project's apps."""
    return [model for model in run_models() if model.__module__.startswith("demo_project.")]


def database_time() -> datetime:
    """The clock by which runs are dated."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment


def count(model: type[RunContract], since: datetime) -> Counts:
    """Where this model's runs are."""
    queued = Q(state="queued")
    later = Q(next_retry_at__gt=Now()) if issubclass(model, RetryContract) else Q(pk=None)
    told: dict[str, Any] = model.objects.filter(
        Q(finished_at=None) | Q(finished_at__gte=since)
    ).aggregate(
        queued=Count("pk", filter=queued & ~later),
        waiting=Count("pk", filter=queued & later),
        running=Count("pk", filter=Q(state="running")),
        succeeded=Count("pk", filter=Q(state="succeeded")),
        failed=Count("pk", filter=Q(state="failed")),
        lost=Sum(Cast(KT("stats__lost"), IntegerField())),
    )
    told["lost"] = told["lost"] or 0
    return Counts(app=model._meta.app_label, name=model._meta.db_table, **told)


class Meter:
    """Takes snapshots, and knows from the earlier ones how fast it goes."""

    def __init__(self, since: datetime) -> None:
        self.since = since
        self._seen: deque[tuple[float, int]] = deque()

    def read(self) -> Snapshot:
        """How far things are now."""
        runs = tuple(count(model, self.since) for model in consumers())
        ended, now = sum(each.ended for each in runs), time.monotonic()
        self._seen.append((now, ended))
        while now - self._seen[0][0] > LATELY:
            self._seen.popleft()
        began, before = self._seen[0]
        pace = (ended - before) / (now - began) if now > began else 0.0
        refused = Delivery.objects.filter(state="failed", finished_at__gte=self.since)
        answers = NewestAnswer.objects.filter(at__gte=self.since)
        letters = DeadLetter.objects.open()
        return Snapshot(runs, letters.count(), answers.count(), refused.count(), pace)
