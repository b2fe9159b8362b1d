"""How a supervisor asks its databases: never longer than its other duties can wait.

While it waits for one answer it sees no dead child, keeps no deadline and fences nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from django.db.utils import Error

from ..conf import settings
from ..lifecycle.database import cancel_statements, forget_connections
from ..lifecycle.patience import DatabaseSilent, patience
from .clock import now

logger = logging.getLogger("runcontract.worker")

RETRY = 1.0
"""Seconds for which a database that failed is left alone; so long are skipped rows, too."""
PATIENCE = 5.0
"""Seconds that a supervisor waits for one answer, at the most …"""
LEAST = 1.0
"""… and at the least, however narrow the fence margin is."""

T = TypeVar("T")


class Unanswered(Exception):
    """The database failed, or failed a moment ago and is left alone."""


class Databases:
    """The databases of one supervisor."""

    def __init__(self) -> None:
        self._again_at: dict[str, float] = {}
        self.until: float | None = None
        """The moment at which the supervisor wants to be gone, whatever is unanswered."""

    def ask(self, alias: str, work: Callable[[], T]) -> T:
        """What `work` returns. Raises Unanswered; what it had begun may have been committed."""
        if now() < self._again_at.get(alias, 0.0):
            raise Unanswered(alias)
        try:
            with patience(self._limit()):
                return work()
        except Error as error:
            self._again_at[alias] = now() + RETRY
            logger.debug("Database %s: %s", alias, error)
            if isinstance(error, DatabaseSilent):
                cancel_statements(timeout=0.5)
            forget_connections()
            raise Unanswered(alias) from error

    def _limit(self) -> float:
        """A quarter of the fence margin: half of it is the jobs' time to unwind."""
        limit = min(PATIENCE, max(LEAST, settings().FENCE_MARGIN.total_seconds() / 4))
        return limit if self.until is None else max(0.1, min(limit, self.until - now()))
