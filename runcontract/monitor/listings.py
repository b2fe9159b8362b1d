"""The lists of runs that a person may look at, each with the moment that orders it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from ..contract.states import State
from ..lifecycle.table import Table


@dataclass(frozen=True)
class Source:
    """One run table, and which of its rows somebody may see."""

    table: Table
    rows: QuerySet[Any]

    def key(self, text: str) -> Any:
        """The primary key that a text spells; None if no row of this table can have it."""
        field = self.table.model._meta.pk
        try:
            key = field.to_python(text)
            field.run_validators(key)
        except ValidationError:
            return None
        return key if self.table.accepts(key) else None


@dataclass(frozen=True)
class Listing:
    """The runs of one kind in the order in which somebody wants to see them."""

    name: str
    state: State
    moment: str
    """The column that orders them."""
    since: str
    """The column that their age is counted from."""
    newest_first: bool

    def of(self, source: Source) -> QuerySet[Any] | None:
        """Its rows in one table; None if that table cannot have any."""
        rows = source.rows.using(source.table.alias).filter(state=str(self.state))
        if self is SUCCEEDED:
            return rows.filter(released_at=None)
        if self.state is not State.QUEUED:
            return rows
        if not source.table.counts:
            return None if self is WAITING else rows
        later = Q(next_retry_at__gt=Now())
        return rows.filter(later if self is WAITING else ~later | Q(next_retry_at=None))

    def order(self) -> list[Any]:
        """What orders its rows, without ties: the newest, or those that waited longest, first."""
        columns = (F(self.moment), F("pk"))
        return [column.desc() if self.newest_first else column.asc() for column in columns]


FAILED = Listing("failed", State.FAILED, "finished_at", "finished_at", True)
RUNNING = Listing("running", State.RUNNING, "started_at", "started_at", False)
QUEUED = Listing("queued", State.QUEUED, "queued_at", "queued_at", False)
WAITING = Listing("waiting", State.QUEUED, "next_retry_at", "queued_at", False)
SUCCEEDED = Listing("succeeded", State.SUCCEEDED, "held_until", "finished_at", True)
"""Only those that still hold their job_id: an index has these, and nobody lists the rest here."""

LISTINGS = {each.name: each for each in (FAILED, RUNNING, QUEUED, WAITING, SUCCEEDED)}
