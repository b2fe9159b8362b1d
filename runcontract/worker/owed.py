"""The runs that a supervisor owes to the queue: their processes are dead, so they go back."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..lifecycle import statements, transitions
from ..lifecycle.database import execute
from ..lifecycle.table import Table, table_at
from .asking import Databases, Unanswered
from .clock import now
from .reports import JOURNAL, Hold

logger = logging.getLogger("runcontract.worker")

SECOND_LOOK = 2.0
"""Seconds until a claim from the journal that was under way cannot be committed any more."""


@dataclass
class _Claim:
    """A claim whose process died before it said that it had it."""

    hold: Hold
    name: str
    look_at: float
    looks: int


class Owed:
    """Gives back until it is through; a lost database only delays it."""

    def __init__(self, databases: Databases) -> None:
        self.holds: list[Hold] = []
        """Runs to give back; they keep their pulse until then."""
        self.refused: list[Hold] = []
        """Not given back because a cancel was asked, or the lease was lost."""
        self._databases = databases
        self._claims: list[_Claim] = []

    def __bool__(self) -> bool:
        return bool(self.holds or self._claims)

    def give_back(self, hold: Hold) -> None:
        """This run's process is dead; its attempt is refunded."""
        self.holds.append(hold)

    def claimed_by(self, hold: Hold, name: str) -> None:
        """A child died while it claimed: whatever runs under its name never began.

        Its statement may still be on its way in the server. An address is called back, so that
        such a claim finds nothing; a claim from the journal is looked for once more.
        """
        looks = 2 if (hold.pk, hold.lease) == JOURNAL else 1
        self._claims.append(_Claim(hold, name, now(), looks))

    def settle(self) -> None:
        """One try at everything that is owed."""
        for claim in [claim for claim in self._claims if now() >= claim.look_at]:
            table = table_at(claim.hold.label)
            if table is None or self._looked_up(claim, table):
                self._claims.remove(claim)
        for hold in list(self.holds):
            table = table_at(hold.label)
            if table is None or self._given_back(hold, table):
                self.holds.remove(hold)

    def _looked_up(self, claim: _Claim, table: Table) -> bool:
        hold = claim.hold

        def look() -> list[Hold]:
            if (hold.pk, hold.lease) != JOURNAL:
                transitions.call_back(table, hold.pk, hold.lease)
            rows = execute(table.alias, statements.held_by(table), [[claim.name]])
            return [Hold(hold.label, pk, lease) for pk, lease, _ in rows]

        try:
            found = self._databases.ask(table.alias, look)
        except Unanswered:
            return False
        self.holds += [hold for hold in found if hold not in self.holds]
        claim.looks -= 1
        claim.look_at = now() + SECOND_LOOK
        return claim.looks == 0

    def _given_back(self, hold: Hold, table: Table) -> bool:
        try:
            done = self._databases.ask(
                table.alias, lambda: transitions.give_back(table, hold.pk, hold.lease)
            )
        except Unanswered:
            return False
        if done:
            logger.info("%s: given back.", hold)
        else:
            self.refused.append(hold)
        return True
