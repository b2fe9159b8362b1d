"""One list of the runs of every table.

One statement for each database: a UNION ALL whose branches are ordered and limited themselves, so
that each reads the top of an index however many rows there are. What differs is merged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from django.db import OperationalError
from django.db.models import (
    DateTimeField,
    Expression,
    F,
    IntegerField,
    QuerySet,
    TextField,
    Value,
)
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Left, Now

from .listings import Listing, Source
from .positions import Position

PAGE = 50
ERROR_TYPE, ERROR_MESSAGE = 100, 300
"""Letters of an error that a list shows; the rest stays in Postgres."""


@dataclass(frozen=True)
class Row:
    """One run as a list shows it, at one moment of its database."""

    label: str
    pk: Any
    job_id: str
    failure: str
    attempts: int | None
    """None for a model without a counter."""
    moment: datetime
    since: datetime
    due: datetime | None
    """When a waiting run will be due."""
    now: datetime
    error_type: str
    error_message: str

    @property
    def age(self) -> timedelta:
        """Since it ended, started or was queued."""
        return self.now - self.since

    @property
    def position(self) -> Position:
        return Position(self.moment, self.label, self.pk)


@dataclass(frozen=True)
class Page:
    """Some rows of a list, and how to go on."""

    rows: list[Row]
    rest: str = ""
    """The position that the next page begins after; empty when there is none."""
    silent: tuple[str, ...] = ()
    """The databases that did not answer."""


def page(
    sources: Iterable[Source], listing: Listing, after: Position | None = None, limit: int = PAGE
) -> Page:
    """The next `limit` runs of a listing over all tables."""
    rows: list[Row] = []
    silent = []
    for alias, group in by_database(sources):
        branches = [_branch(source, listing, after, limit + 1) for source in group]
        try:
            rows += _read([each for each in branches if each is not None], group)
        except OperationalError:
            silent.append(alias)
    rows.sort(
        key=lambda row: (row.moment, row.label, row.pk),
        reverse=listing.newest_first,
    )
    rest = str(rows[limit - 1].position) if len(rows) > limit else ""
    return Page(rows[:limit], rest, tuple(silent))


def by_database(sources: Iterable[Source]) -> Iterator[tuple[str, list[Source]]]:
    """The sources of each database."""

    def alias(source: Source) -> str:
        return source.table.alias

    return ((name, list(group)) for name, group in groupby(sorted(sources, key=alias), alias))


def _read(branches: Sequence[QuerySet[Any]], sources: Iterable[Source]) -> list[Row]:
    if not branches:
        return []
    keys = {source.table.label: source.table.model._meta.pk for source in sources}
    first, *others = branches
    statement = first.union(*others, all=True) if others else first
    return [Row(label, keys[label].to_python(pk), *more) for label, pk, *more in statement]


def _branch(
    source: Source, listing: Listing, after: Position | None, limit: int
) -> QuerySet[Any] | None:
    rows = listing.of(source)
    if rows is None:
        return None
    if after is not None:
        rows = rows.filter(after.beyond(listing, source.table.label))
    columns = _columns(source, listing)
    return rows.order_by(*listing.order()).values_list(*columns)[:limit]


def _columns(source: Source, listing: Listing) -> list[Expression | F]:
    """What a Row is made of. Each has one type in every branch, as a UNION needs it."""
    counts = source.table.counts
    return [
        Cast(Value(source.table.label), TextField()),
        Cast("pk", TextField()),
        F("job_id"),
        F("failure"),
        F("attempts") if counts else Cast(Value(None), IntegerField()),
        F(listing.moment),
        F(listing.since),
        F("next_retry_at") if counts else Cast(Value(None), DateTimeField()),
        Now(),
        _of_error("type", ERROR_TYPE),
        _of_error("message", ERROR_MESSAGE),
    ]


def _of_error(key: str, letters: int) -> Expression:
    return Left(KeyTextTransform(key, "last_error"), letters)
