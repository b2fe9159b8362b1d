"""One dict, `RUNCONTRACT`, read into one frozen object. A default lives here and nowhere else."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .exceptions import ConfigurationError

SECOND = timedelta(seconds=1)
LONGEST = timedelta(days=36_500)
"""A duration is added to a timestamp, which must not overflow at the settle."""


@dataclass(frozen=True)
class Settings:
    """The settings. Durations are timedeltas. (P): a model's RunPolicy overrides it."""

    HEARTBEAT: timedelta = 30 * SECOND
    """The pulse: how often a supervisor proves that its runs live."""
    STALE_AFTER: timedelta = 120 * SECOND
    """(P) Silence after which a running run is given up; at least four pulses."""
    FENCE_MARGIN: timedelta = 15 * SECOND
    """A supervisor without a pulse stops its runs this long before they turn stale."""
    TICK: timedelta = 1 * SECOND
    """Period of the scheduler's loop."""
    SWEEP: timedelta = 20 * SECOND
    """Period of the search for lost messages, and its grace."""
    SCHEDULER_LEASE: timedelta = 15 * SECOND
    """A silent scheduler is replaced by a standby after this."""
    DRAIN_TIMEOUT: timedelta = 20 * SECOND
    """How long a stopping worker waits for its runs before it gives them back."""
    LANE: str = "default"
    """(P) The lane of runs that name none."""
    FAST_PATH: bool = True
    """Keep a hint in Redis for each held job_id."""
    MAX_ATTEMPTS: int = 5
    """(P) Attempts before a transient failure is final."""
    BACKOFF_BASE: timedelta = 30 * SECOND
    """(P) Pauses are U(0, min(cap, base * 2^(attempt-1)))."""
    BACKOFF_CAP: timedelta = 300 * SECOND
    """(P)"""
    BACKOFF_FLOOR: timedelta = 1 * SECOND
    """No pause is shorter."""
    SHORT_PAUSE: timedelta = 60 * SECOND
    """(P) A pause up to this is waited in the worker; a longer one frees it."""
    RETRY_AFTER_MAX: timedelta = timedelta(hours=24)
    """(P) The most that a Retry-After may ask for."""
    HOLD_SUCCEEDED: timedelta = timedelta(hours=24)
    """(P) How long a succeeded run holds its job_id."""
    HOLD_FAILED: timedelta = 60 * SECOND
    """(P) How long a failed run holds its job_id."""
    ON_LOST: str = "fail"
    """(P) "fail" or "retry": what becomes of a run whose worker was lost."""
    MAX_LOST: int = 3
    """(P) With ON_LOST "retry": the run is failed/stale when this many workers were lost."""
    TIMEOUT: timedelta | None = None
    """(P) The longest an attempt may take; None: no limit."""
    RETAIN: timedelta | None = None
    """(P) Terminal, released runs older than this are pruned; None: never."""
    REDACT: Callable[[str], str] | str | None = None
    """A callable, or its dotted path, applied to every error text after the built-in masking."""

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_type(field.name, str(field.type), getattr(self, field.name))
        if self.ON_LOST not in ("fail", "retry"):
            raise ConfigurationError(
                f'RUNCONTRACT["ON_LOST"] must be "fail" or "retry", not {self.ON_LOST!r}.'
            )

    @property
    def redact(self) -> Callable[[str], str] | None:
        """The consumer's own masking, imported; None when there is none."""
        return import_string(self.REDACT) if isinstance(self.REDACT, str) else self.REDACT


_ZERO_ALLOWED = {"BACKOFF_FLOOR", "HOLD_FAILED", "HOLD_SUCCEEDED", "SHORT_PAUSE", "DRAIN_TIMEOUT"}


def _check_type(name: str, declared: str, value: Any) -> None:
    if "timedelta" in declared:
        if value is None and "None" in declared:
            return
        if not isinstance(value, timedelta):
            raise ConfigurationError(
                f'RUNCONTRACT["{name}"] must be a datetime.timedelta, not {value!r}.'
            )
        if value < timedelta(0) or (not value and name not in _ZERO_ALLOWED):
            raise ConfigurationError(f'RUNCONTRACT["{name}"] must be positive, not {value}.')
        if value > LONGEST:
            raise ConfigurationError(
                f'RUNCONTRACT["{name}"] must be at most {LONGEST.days} days, not {value.days}.'
            )
    elif declared == "int" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigurationError(
            f'RUNCONTRACT["{name}"] must be a whole number from 1 on, not {value!r}.'
        )
    elif declared == "bool" and not isinstance(value, bool):
        raise ConfigurationError(f'RUNCONTRACT["{name}"] must be True or False, not {value!r}.')
    elif declared == "str" and (not isinstance(value, str) or not value):
        raise ConfigurationError(f'RUNCONTRACT["{name}"] must be a text, not {value!r}.')


def read(values: Mapping[str, Any]) -> Settings:
    """Settings from a dict; an unknown key is refused with the nearest name."""
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"RUNCONTRACT must be a dict, not {values!r}.")
    known = [field.name for field in fields(Settings)]
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key).upper(), known, 1, 0.0)[0]
            raise ConfigurationError(f'RUNCONTRACT has no key "{key}"; did you mean "{near}"?')
    return Settings(**values)


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The project's settings. Raises ConfigurationError, which `check` reports."""
    return read(getattr(django_settings, "RUNCONTRACT", {}))


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "RUNCONTRACT":
        settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="runcontract.conf")
