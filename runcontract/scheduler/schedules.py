"""Schedules: declared in each app's `schedules.py`, found there by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from django.utils.module_loading import autodiscover_modules

from ..exceptions import ConfigurationError
from ..lifecycle.table import Table, table_of
from ..models import RunContract

SKIP, ONCE, ALL = "skip", "once", "all"
CATCH_UP_LIMIT = 100
"""Missed fire times that one pass catches up with `all`."""


@dataclass(frozen=True)
class Schedule:
    """When a run model is enqueued by itself, and what becomes of missed times."""

    name: str
    model: type[RunContract]
    expression: str
    timezone: str = "UTC"
    catch_up: str = ONCE
    lock_key: str | None = None
    lane: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def table(self) -> Table:
        return table_of(self.model)

    def problem(self) -> str | None:
        """Why this schedule can never fire, in one sentence; None if it can."""
        try:
            next(CronSim(self.expression, datetime.now(self._zone)))
        except (CronSimError, StopIteration):
            return f"Schedule {self.name!r}: {self.expression!r} is no time that ever comes."
        except (ZoneInfoNotFoundError, ValueError):
            return f"Schedule {self.name!r}: there is no time zone {self.timezone!r}."
        return None

    @property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    def fire_times(self, after: datetime, until: datetime) -> list[datetime]:
        """Fire times in (after, until], oldest first, in UTC, as cron's rules have them for DST.

        With `all` the oldest hundred; otherwise only the newest.
        """
        if self.catch_up != ALL:
            return self._newest(after, until)
        found: list[datetime] = []
        for moment in CronSim(self.expression, after.astimezone(self._zone)):
            fire_at = moment.astimezone(UTC)
            if fire_at > until or len(found) >= CATCH_UP_LIMIT:
                break
            found.append(fire_at)
        return found

    def _newest(self, after: datetime, until: datetime) -> list[datetime]:
        later = (until + timedelta(seconds=1)).astimezone(self._zone)
        for moment in CronSim(self.expression, later, reverse=True):
            fire_at = moment.astimezone(UTC)
            return [fire_at] if after < fire_at <= until else []
        return []


_schedules: dict[str, Schedule] = {}


def schedule(
    name: str,
    model: type[RunContract],
    expression: str,
    *,
    timezone: str = "UTC",
    catch_up: str = ONCE,
    lock_key: str | None = None,
    lane: str | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Schedule:
    """Enqueue a run of `model` at each time of a cron expression (five fields, or six).

    Missed times, after an outage: `skip` runs none of them, `once` the newest, `all` each, oldest
    first. Raises ConfigurationError for a name that is taken or an unknown `catch_up`; an
    impossible expression is reported by `check` and stops only itself.
    """
    if catch_up not in (SKIP, ONCE, ALL):
        raise ConfigurationError(
            f'Schedule {name!r}: catch_up must be "skip", "once" or "all", not {catch_up!r}.'
        )
    made = Schedule(name, model, expression, timezone, catch_up, lock_key, lane, fields or {})
    known = _schedules.setdefault(name, made)
    if known is not made and known != made:
        raise ConfigurationError(f"There are two schedules with the name {name!r}.")
    return known


def schedules() -> list[Schedule]:
    """Every schedule of the project, by name."""
    autodiscover_modules("schedules")
    return [_schedules[name] for name in sorted(_schedules)]
