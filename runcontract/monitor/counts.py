"""How many runs of each kind each table has, counted no further than a person would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import OperationalError, connections

from .failures import by_database
from .listings import LISTINGS, Source

CAP = 1000
"""What is more than this is told as more than this."""

Counts = dict[tuple[str, str], int]
"""(label, name of a listing): how many, at most CAP + 1."""


def counts(sources: Iterable[Source]) -> Counts:
    """One statement for each database; what a silent one has is left out."""
    found: Counts = {}
    for alias, group in by_database(sources):
        parts = list(_parts(alias, group))
        if not parts:
            continue
        statement = " UNION ALL ".join(sql for sql, _ in parts)
        params = [param for _, own in parts for param in own]
        try:
            with connections[alias].cursor() as cursor:
                cursor.execute(statement, params)
                found |= {(label, name): number for label, name, number in cursor.fetchall()}
        except OperationalError:
            continue
    return found


def in_words(numbers: Iterable[int]) -> str:
    """Their sum, or that it is more than CAP."""
    total = sum(numbers)
    return f"{CAP}+" if total > CAP else str(total)


def _parts(alias: str, sources: Iterable[Source]) -> Iterator[tuple[str, list[Any]]]:
    for source in sources:
        for name, listing in LISTINGS.items():
            rows = listing.of(source)
            if rows is None:
                continue
            capped = rows.order_by().values_list("pk")[: CAP + 1]
            try:
                sql, params = capped.query.get_compiler(alias).as_sql()
            except EmptyResultSet:
                continue
            yield (
                f"SELECT %s::text, %s::text, count(*) FROM ({sql}) AS capped",
                [source.table.label, name, *params],
            )
