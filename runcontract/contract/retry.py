"""How long a run pauses before its next attempt."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from .policy import EffectivePolicy
from .retry_after import LONGEST, parse_retry_after

__all__ = ["backoff", "parse_retry_after", "pause"]

JITTER = 0.1
"""How much longer than asked a pause after a Retry-After may be, as a share of it."""

Uniform = Callable[[float, float], float]


def backoff(
    attempt: int,
    *,
    base: timedelta,
    cap: timedelta,
    floor: timedelta,
    uniform: Uniform = random.uniform,
) -> timedelta:
    """Full jitter after the `attempt`-th attempt: U(0, min(cap, base * 2^(attempt-1))) or `floor`.

    The floor wins over the cap. No number of attempts overflows.
    """
    doublings = min(max(attempt - 1, 0), 1000)
    longest = min(cap, LONGEST).total_seconds()
    ceiling = min(longest, base.total_seconds() * 2.0**doublings)
    return max(floor, timedelta(seconds=uniform(0, ceiling)))


def pause(
    attempt: int,
    retry_after: Any,
    policy: EffectivePolicy,
    *,
    uniform: Uniform = random.uniform,
    now: datetime | None = None,
) -> timedelta:
    """The pause after the `attempt`-th attempt.

    A readable `retry_after` is a lower bound: up to a tenth is added, so that not all who were
    sent away come back at once. The back-off's cap does not apply to it, `policy.retry_after_max`
    does. One that asks for no time at all, or that cannot be read, leaves the usual back-off.
    """
    asked = parse_retry_after(retry_after, now=now)
    if not asked:
        return backoff(
            attempt,
            base=policy.backoff_base,
            cap=policy.backoff_cap,
            floor=policy.backoff_floor,
            uniform=uniform,
        )
    most = policy.retry_after_max
    wait = min(asked + asked * uniform(0, JITTER), most)
    return max(wait, policy.backoff_floor)
