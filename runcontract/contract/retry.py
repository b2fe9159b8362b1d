"""How long to wait before the next attempt."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from .policy import EffectivePolicy

Uniform = Callable[[float, float], float]

_EXPONENT_LIMIT = 64
_ASKED_JITTER = 0.1
"""The part of a Retry-After that is added at the most, so that not all come back at once."""
_SECONDS = re.compile(r"\s*\+?\d{1,15}(\.\d{0,9})?\s*", re.ASCII)


def backoff(
    attempt: int,
    *,
    base: timedelta,
    cap: timedelta,
    floor: timedelta,
    uniform: Uniform = random.uniform,
) -> timedelta:
    """Full jitter: U(0, min(cap, base * 2^(attempt-1))), never below the floor.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    exponent = min(max(attempt, 1) - 1, _EXPONENT_LIMIT)
    limit = min(cap.total_seconds(), base.total_seconds() * 2.0**exponent)
    return max(floor, timedelta(seconds=uniform(0.0, limit)))


def pause(
    attempt: int,
    retry_after: Any,
    policy: EffectivePolicy,
    *,
    uniform: Uniform = random.uniform,
    now: datetime | None = None,
) -> timedelta:
    """The pause after a failed attempt.

    A Retry-After is a lower bound with jitter added; the cap does not clip it, `retry_after_max`
    does. What cannot be read counts as not said.
    """
    asked = parse_retry_after(retry_after, now=now)
    if asked is None:
        return backoff(
            attempt,
            base=policy.backoff_base,
            cap=policy.backoff_cap,
            floor=policy.backoff_floor,
            uniform=uniform,
        )
    asked = min(asked, policy.retry_after_max)
    return max(policy.backoff_floor, asked + asked * uniform(0.0, _ASKED_JITTER))


def parse_retry_after(value: Any, *, now: datetime | None = None) -> timedelta | None:
    """A Retry-After in any of its forms as a duration; None for what makes no sense.

    Takes seconds (a number, or text as RFC 9110 has it), an HTTP date, a timedelta, or a datetime
    (a naive one is UTC). Negative, past, infinite and unreadable values are None. Never raises.
    """
    try:
        found = _parse(value, now or datetime.now(UTC))
    except (ValueError, TypeError, OverflowError, IndexError, AttributeError):
        return None
    return found if found is not None and found >= timedelta(0) else None


def _parse(value: Any, now: datetime) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, datetime):
        return _until(value, now)
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return _seconds(float(value))
    if isinstance(value, bytes):
        value = value.decode("ascii")
    if not isinstance(value, str):
        return None
    if _SECONDS.fullmatch(value):
        return _seconds(float(value))
    return _until(parsedate_to_datetime(value), now)


def _seconds(number: float) -> timedelta | None:
    """A number of seconds; more than timedelta can hold is the most that it can."""
    if not math.isfinite(number):
        return None
    return timedelta(seconds=min(number, timedelta.max.total_seconds() // 2))


def _until(moment: datetime, now: datetime) -> timedelta:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware - now
