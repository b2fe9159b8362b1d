"""The scheduler's lease: one row, the database's clock, no session that a pooler could break.

Leadership only saves work; each move of the scheduler is decided by its own guard.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from typing import Any

from ..conf import settings
from ..lifecycle.database import execute, write_alias
from ..models import SchedulerLease

NAME = "scheduler"

_TAKE = (
    "INSERT INTO runcontract_schedulerlease AS held (name, holder, term, expires_at, epochs) "
    "VALUES (%s, %s, 1, clock_timestamp() + %s::interval, '{}'::jsonb) "
    "ON CONFLICT (name) DO UPDATE SET holder = EXCLUDED.holder, term = held.term + 1, "
    "expires_at = EXCLUDED.expires_at "
    "WHERE held.expires_at < clock_timestamp() OR held.holder = EXCLUDED.holder "
    "RETURNING term, epochs"
)
_MINE = "name = %s AND holder = %s AND term = %s AND expires_at >= clock_timestamp()"
_RENEW = (
    "UPDATE runcontract_schedulerlease SET expires_at = clock_timestamp() + %s::interval "
    f"WHERE {_MINE} RETURNING term"
)
# Not '-infinity', which no Python datetime can hold and nobody could read.
_RELEASE = (
    "UPDATE runcontract_schedulerlease SET expires_at = clock_timestamp() - interval '1 ms' "
    f"WHERE {_MINE}"
)
_EPOCHS = (
    "UPDATE runcontract_schedulerlease SET epochs = epochs || %s::jsonb "
    f"WHERE {_MINE} RETURNING term"
)


class StandDown(Exception):
    """Whatever is being done ends here; the rows are as good for the next who comes."""


class NotLeading(StandDown):
    """The lease is lost; whoever sees this stands by."""


def boottime() -> float:
    """Seconds on a clock that goes on while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Lease:
    """Who leads, from the point of view of one scheduler."""

    def __init__(self) -> None:
        self.holder = f"{socket.gethostname()[:100]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.term: int | None = None
        self.epochs: dict[str, str] = {}
        self._renewed_at = 0.0

    @property
    def leading(self) -> bool:
        return self.term is not None

    def take(self) -> bool:
        """Become the leader if nobody is."""
        begun = boottime()
        rows = self._execute(_TAKE, [NAME, self.holder, settings().SCHEDULER_LEASE])
        if not rows:
            return False
        self.term, epochs = rows[0]
        self.epochs = json.loads(epochs) if isinstance(epochs, str) else epochs
        self._renewed_at = begun
        return True

    def keep(self) -> None:
        """Renew when a third of the lease is over. Raises NotLeading when it is lost."""
        lifetime = settings().SCHEDULER_LEASE.total_seconds()
        if boottime() - self._renewed_at < lifetime / 3:
            return
        begun = boottime()
        if not self._execute(_RENEW, [settings().SCHEDULER_LEASE, *self._me()]):
            self.lose()
            raise NotLeading
        self._renewed_at = begun

    def lose(self) -> None:
        """Lead no longer; it may be taken again."""
        self.term = None

    def remember_epoch(self, key: str, epoch: str) -> None:
        """Everything due was dispatched after this epoch of a Redis server began."""
        if not self._execute(_EPOCHS, [json.dumps({key: epoch}), *self._me()]):
            self.lose()
            raise NotLeading
        self.epochs[key] = epoch

    def release(self) -> None:
        """Hand over at once."""
        if self.term is not None:
            self._execute(_RELEASE, self._me())
            self.lose()

    @property
    def alias(self) -> str:
        """The database of the lease's row."""
        return write_alias(SchedulerLease)

    def _me(self) -> list[Any]:
        return [NAME, self.holder, self.term]

    def _execute(self, statement: str, params: list[Any]) -> list[tuple[Any, ...]]:
        return execute(self.alias, statement, params)
