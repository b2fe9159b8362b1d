"""Where a page of a merged list ends, so that the next one goes on from there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from .listings import Listing, Source

_SEPARATOR = "~"


@dataclass(frozen=True)
class Position:
    """A place in the order by (moment, label, key), which no two runs share."""

    moment: datetime
    label: str
    pk: Any

    def __str__(self) -> str:
        return _SEPARATOR.join([self.moment.isoformat(), self.label, str(self.pk)])

    @classmethod
    def parse(cls, text: str, sources: Iterable[Source]) -> Position | None:
        """The position that a text spells; None for any other text, so for the first page."""
        known = {source.table.label: source for source in sources}
        try:
            moment, label, key = text.split(_SEPARATOR)
            found = cls(datetime.fromisoformat(moment), label, known[label].key(key))
        except (ValueError, KeyError):
            return None
        return found if found.moment.tzinfo and found.pk is not None else None

    def beyond(self, listing: Listing, label: str) -> Q:
        """Which rows of the table with this label come after it."""
        after = "lt" if listing.newest_first else "gt"
        strictly = Q(**{f"{listing.moment}__{after}": self.moment})
        at_least = Q(**{f"{listing.moment}__{after}e": self.moment})
        if label == self.label:
            return at_least & (strictly | Q(**{f"pk__{after}": self.pk}))
        follows = label < self.label if listing.newest_first else label > self.label
        return at_least if follows else strictly
