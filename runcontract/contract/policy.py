"""What a run model decides for its runs; everything unsaid comes from the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum
from functools import lru_cache
from typing import Any

from ..conf import Settings, settings
from ..exceptions import ConfigurationError
from .classify import Verdict


class _Unset(Enum):
    UNSET = "from the settings"


UNSET = _Unset.UNSET
"""The value of a policy's field that the settings decide."""


@dataclass(frozen=True, kw_only=True)
class RunPolicy:
    """How the runs of one model behave. A field left out takes the setting of its name."""

    lane: str | _Unset = UNSET
    max_attempts: int | _Unset = UNSET
    backoff_base: timedelta | _Unset = UNSET
    backoff_cap: timedelta | _Unset = UNSET
    short_pause: timedelta | _Unset = UNSET
    retry_after_max: timedelta | _Unset = UNSET
    hold_succeeded: timedelta | _Unset = UNSET
    hold_failed: timedelta | _Unset = UNSET
    on_lost: str | _Unset = UNSET
    max_lost: int | _Unset = UNSET
    timeout: timedelta | None | _Unset = UNSET
    stale_after: timedelta | _Unset = UNSET
    retain: timedelta | None | _Unset = UNSET
    atomic: bool = False
    """Perform and settle in one transaction: effects in Postgres are then exactly once."""
    classify: Callable[[BaseException], Verdict | None] | None = None
    """The consumer's own table of errors; None as its answer asks the built-in one."""

    def effective(self) -> EffectivePolicy:
        """This policy with every gap filled by the settings of this moment."""
        return _effective(self, settings())


@dataclass(frozen=True, kw_only=True)
class EffectivePolicy:
    """A policy without gaps."""

    lane: str
    max_attempts: int
    backoff_base: timedelta
    backoff_cap: timedelta
    short_pause: timedelta
    retry_after_max: timedelta
    hold_succeeded: timedelta
    hold_failed: timedelta
    on_lost: str
    max_lost: int
    timeout: timedelta | None
    stale_after: timedelta
    retain: timedelta | None
    atomic: bool
    classify: Callable[[BaseException], Verdict | None] | None
    backoff_floor: timedelta


@lru_cache(maxsize=256)
def _effective(policy: RunPolicy, defaults: Settings) -> EffectivePolicy:
    values: dict[str, Any] = {"backoff_floor": defaults.BACKOFF_FLOOR}
    own: dict[str, Any] = {}
    for field in fields(RunPolicy):
        value = getattr(policy, field.name)
        values[field.name] = getattr(defaults, field.name.upper()) if value is UNSET else value
        if value is not UNSET and hasattr(defaults, field.name.upper()):
            own[field.name.upper()] = value
    try:
        Settings(**own)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace("RUNCONTRACT", "RunPolicy")) from None
    return EffectivePolicy(**values)
