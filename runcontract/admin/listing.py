"""What the failure page shows: one listing, its filters, its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from ..lifecycle.table import Table
from ..monitor.counts import Counts, counts, in_words
from ..monitor.failures import Page, Row, page
from ..monitor.listings import FAILED, LISTINGS, SUCCEEDED, WAITING
from ..monitor.positions import Position
from ..monitor.words import NO_NUMBER, span_in_words
from .access import Access


@dataclass(frozen=True)
class Line:
    """One row with what a person needs beside it."""

    row: Row
    module: str
    address: str
    """The run's own admin page, or nothing."""
    redoable: bool

    @property
    def value(self) -> str:
        """Of its checkbox."""
        return f"{self.row.label}:{self.row.pk}"

    @property
    def attempts(self) -> int | str:
        return NO_NUMBER if self.row.attempts is None else self.row.attempts

    @property
    def age(self) -> str:
        return span_in_words(self.row.age)

    @property
    def wait(self) -> str:
        """How long it still waits."""
        return "" if self.row.due is None else span_in_words(self.row.due - self.row.now)


@dataclass(frozen=True)
class Filter:
    """A filter as the admin's own templates want it."""

    title: str
    options: list[dict[str, Any]]
    template: str = "admin/filter.html"

    def choices(self, changelist: Any) -> list[dict[str, Any]]:
        return self.options


class Screen:
    """The page as one person asked for it; anything unknown in the query is left out."""

    def __init__(self, access: Access, asked: Mapping[str, str]) -> None:
        self.access = access
        self.listing = LISTINGS.get(asked.get("state", ""), FAILED)
        chosen = access.source(asked.get("module", ""))
        self.sources = access.sources if chosen is None else [chosen]
        self._module = "" if chosen is None else chosen.table.label
        self._after = asked.get("after", "")

    def query(self, **changes: str) -> dict[str, str]:
        """The query of this page, or of one that differs; another filter begins at its top."""
        values = {"state": self.listing.name, "module": self._module}
        values |= changes or {"after": self._after}
        return {name: value for name, value in values.items() if value}

    @cached_property
    def page(self) -> Page:
        return page(self.sources, self.listing, Position.parse(self._after, self.sources))

    @cached_property
    def lines(self) -> list[Line]:
        """The rows, each with its module, its own page and whether it may be redone."""
        tables = {source.table.label: source.table for source in self.sources}
        changeable = {label for label in tables if self.access.may_change(tables[label])}
        failed = self.listing is FAILED
        return [
            Line(
                row,
                module_name(tables[row.label]),
                self.access.address(tables[row.label], row.pk),
                failed and row.label in changeable,
            )
            for row in self.page.rows
        ]

    @property
    def redoable(self) -> bool:
        """Whether there is anything to redo here."""
        return any(line.redoable for line in self.lines)

    @property
    def waits(self) -> bool:
        """Whether what is listed waits for a time."""
        return self.listing is WAITING

    @property
    def recent(self) -> bool:
        """Whether only what ended lately is listed."""
        return self.listing is SUCCEEDED

    @property
    def first(self) -> str:
        """The query of the list's top; nothing on the first page."""
        return f"?{urlencode(self.query(after=''))}" if self._after else ""

    @property
    def rest(self) -> str:
        """The query of the next page; nothing on the last one."""
        return f"?{urlencode(self.query(after=self.page.rest))}" if self.page.rest else ""

    def changelist(self, opts: Any) -> dict[str, Any]:
        """What the admin's own change_list.html asks of a ChangeList."""
        return {
            "opts": opts,
            "has_filters": True,
            "filter_specs": list(self._filters()),
            "has_active_filters": bool(self._module or self.listing is not FAILED),
            "clear_all_filters_qs": "?",
            "result_list": self.lines,
        }

    def _filters(self) -> Iterator[Filter]:
        found = counts(self.access.sources)
        yield Filter("state", [self._state(name, found) for name in LISTINGS])
        labels = {source.table.label: module_name(source.table) for source in self.access.sources}
        if len(labels) > 1:
            names = {"": "All", **labels}
            yield Filter("module", [self._choice(label, names[label], found) for label in names])

    def _state(self, name: str, found: Counts) -> dict[str, Any]:
        labels = [source.table.label for source in self.sources]
        number = in_words(found.get((label, name), 0) for label in labels)
        query = urlencode(self.query(state=name))
        return _option(name, number, query, name == self.listing.name)

    def _choice(self, label: str, name: str, found: Counts) -> dict[str, Any]:
        labels = [label] if label else [source.table.label for source in self.access.sources]
        number = in_words(found.get((each, self.listing.name), 0) for each in labels)
        query = urlencode(self.query(module=label))
        return _option(name, number, query, label == self._module)


def _option(name: str, number: str, query: str, selected: bool) -> dict[str, Any]:
    return {"display": f"{name} ({number})", "query_string": f"?{query}", "selected": selected}


def module_name(table: Table) -> str:
    """App and kind of run, as a person reads them."""
    meta = table.model._meta
    return f"{meta.app_label} / {meta.verbose_name}"
