"""The runs that a supervisor owes to the queue: their processes are dead, so they go back."""

from __future__ import annotations

import logging

from django.db.utils import Error

from ..lifecycle import statements, transitions
from ..lifecycle.database import execute, forget_connections
from ..lifecycle.table import table_at
from .clock import now, patience
from .pulse import PATIENCE, RETRY
from .reports import Hold

logger = logging.getLogger("runcontract.worker")


class Owed:
    """Gives back until it is through; a lost database only delays it."""

    def __init__(self) -> None:
        self.holds: list[Hold] = []
        """Runs to give back; they keep their pulse until then."""
        self.refused: list[Hold] = []
        """Not given back because a cancel was asked, or the lease was lost."""
        self._claims: list[tuple[str, str]] = []
        self._again_at = 0.0

    def __bool__(self) -> bool:
        return bool(self.holds or self._claims)

    def give_back(self, hold: Hold) -> None:
        """This run's process is dead; its attempt is refunded."""
        self.holds.append(hold)

    def claimed_by(self, label: str, name: str) -> None:
        """A child died while it claimed: whatever runs under its name never began."""
        self._claims.append((label, name))

    def settle(self) -> None:
        """One try at everything that is owed."""
        if not self or now() < self._again_at:
            return
        self._again_at = now() + RETRY
        try:
            with patience(PATIENCE):
                self._look_up_claims()
                self._give_back()
        except Error as error:
            logger.warning("Runs could not be given back yet (%s).", type(error).__name__)
            forget_connections()

    def _look_up_claims(self) -> None:
        while self._claims:
            label, name = self._claims[-1]
            table = table_at(label)
            if table is not None:
                for pk, lease, _ in execute(table.alias, statements.held_by(table), [[name]]):
                    self.holds.append(Hold(label, pk, lease))
            self._claims.pop()

    def _give_back(self) -> None:
        while self.holds:
            hold = self.holds[-1]
            table = table_at(hold.label)
            if table is not None and transitions.give_back(table, hold.pk, hold.lease):
                logger.info("%s: given back.", hold)
            else:
                self.refused.append(hold)
            self.holds.pop()
