"""What lets one bad row, table, database or schedule hold up nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..lifecycle.database import DatabaseFailure, answers
from .lease import StandDown
from .said import Said

LEFT_ALONE = 5.0
"""Seconds that a database is left alone after it did not answer."""


class Guard:
    """Does one thing after the other; what one raises is said once, and the next is done.

    `turned(alias)` is called when a database is found to be away, and when it is back.
    """

    def __init__(self, said: Said, turned: Callable[[str], Any]) -> None:
        self._said, self._turned = said, turned
        self._away_until: dict[str, float] = {}

    def is_away(self, alias: str) -> bool:
        """Whether this database did not answer when it was last asked."""
        return alias in self._away_until

    def do(self, what: str, alias: str, work: Callable[[], Any]) -> None:
        """Do one thing with one database. Raises StandDown only."""
        if not self._is_there(alias):
            return
        try:
            work()
        except StandDown:
            raise
        except DatabaseFailure as error:
            self.failed(what, alias, error)
        except Exception as error:  # noqa: BLE001 - said, and tried again
            self._said.fails(what, error)
        else:
            self._said.over(what)

    def failed(self, what: str, alias: str, error: Exception) -> None:
        """Leave a database alone that is gone; one that answers has refused this one thing only."""
        if answers(alias):
            self._said.fails(what, error)
            return
        self._leave_alone(alias)
        kind = type(error).__name__
        self._said.begins(f"database {alias}", f"Database {alias} is away ({kind}).")

    def _is_there(self, alias: str) -> bool:
        if alias not in self._away_until:
            return True
        if time.monotonic() < self._away_until[alias]:
            return False
        if not answers(alias):
            self._leave_alone(alias)
            return False
        self.answered(alias)
        return True

    def _leave_alone(self, alias: str) -> None:
        self._away_until[alias] = time.monotonic() + LEFT_ALONE
        self._turned(alias)

    def answered(self, alias: str) -> None:
        """It is there, perhaps again."""
        if self._away_until.pop(alias, None) is not None:
            self._turned(alias)
            self._said.over(f"database {alias}")
