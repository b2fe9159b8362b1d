"""Schedules: declared in each app's `schedules.py`, found there by themselves."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from django.apps import apps
from django.db.models import Model
from django.utils.module_loading import module_has_submodule

from ..exceptions import ConfigurationError, InvalidRun
from ..lifecycle.table import Table, table_of
from ..lifecycle.validate import check_key, check_lane, check_own
from ..models import RunContract

logger = logging.getLogger("runcontract.scheduler")

SKIP, ONCE, ALL = "skip", "once", "all"
CATCH_UP_LIMIT = 100
"""Missed fire times that one pass catches up with `all`."""
NAME_LIMIT = 200


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
            zone = self._zone
        except (KeyError, ValueError, TypeError, OSError):
            return f"Schedule {self.name!r}: there is no time zone {self.timezone!r}."
        try:
            next(CronSim(self.expression, datetime.now(zone)))
        except (CronSimError, StopIteration, AttributeError, TypeError):
            return f"Schedule {self.name!r}: {self.expression!r} is no time that ever comes."
        try:
            self._check_wish()
        except InvalidRun as error:
            return f"Schedule {self.name!r}: {error}"
        return None

    def _check_wish(self) -> None:
        if self.lock_key is not None:
            check_key("lock_key", self.lock_key)
        check_lane(self.table.policy.lane if self.lane is None else self.lane)
        check_own(self.table, self.fields)

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
            if fire_at > after:  # not so in a repeated hour, where the first of two times counts
                found.append(fire_at)
        return found

    def _newest(self, after: datetime, until: datetime) -> list[datetime]:
        later = (until + timedelta(seconds=1)).astimezone(self._zone)
        for moment in CronSim(self.expression, later, reverse=True):
            fire_at = moment.astimezone(UTC)
            if fire_at <= until:
                return [fire_at] if fire_at > after else []
        return []


_schedules: dict[str, Schedule] = {}


def schedule(
    name: str,
    model: type[Model],
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
    first. Raises ConfigurationError for a name that is taken or no name, a model that has no runs
    or an unknown `catch_up`; an impossible expression is reported by `check` and stops only itself.
    """
    if not 0 < len(name) <= NAME_LIMIT:
        raise ConfigurationError(
            f"A schedule's name has 1 to {NAME_LIMIT} characters, not {len(name)}: {name!r}."
        )
    if not issubclass(model, RunContract) or model._meta.abstract:
        raise ConfigurationError(f"Schedule {name!r}: {model.__name__} is no run model.")
    if catch_up not in (SKIP, ONCE, ALL):
        raise ConfigurationError(
            f'Schedule {name!r}: catch_up must be "skip", "once" or "all", not {catch_up!r}.'
        )
    made = Schedule(name, model, expression, timezone, catch_up, lock_key, lane, fields or {})
    known = _schedules.setdefault(name, made)
    if known is not made and known != made:
        raise ConfigurationError(f"There are two schedules with the name {name!r}.")
    return known


_modules: dict[str, str | None] = {}


def schedules() -> list[Schedule]:
    """Every schedule of the project, by name."""
    _discover()
    return [_schedules[name] for name in sorted(_schedules)]


def problems() -> list[str]:
    """A sentence for each `schedules.py` that cannot be imported, and each that can never fire."""
    found = [item.problem() for item in schedules()]
    return [problem for problem in (*_modules.values(), *found) if problem is not None]


def _discover() -> None:
    """Import each app's `schedules.py`, once; one that is broken holds up no other."""
    for app in apps.get_app_configs():
        if app.name not in _modules:
            _modules[app.name] = None
            if app.module is not None and module_has_submodule(app.module, "schedules"):
                _modules[app.name] = _import(f"{app.name}.schedules")


def _import(module: str) -> str | None:
    try:
        import_module(module)
    except Exception as error:
        logger.exception("%s cannot be imported; its schedules do not fire.", module)
        return f"{module} cannot be imported: {type(error).__name__}: {error}"
    return None
