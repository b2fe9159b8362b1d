from __future__ import annotations

import random
from datetime import timedelta


def backoff(attempt, *, base, cap, floor, uniform=random.uniform):
    return max(
        floor,
        timedelta(
            seconds=uniform(
                0, min(cap.total_seconds(), base.total_seconds() * 2 ** min(attempt - 1, 60))
            )
        ),
    )


def pause(attempt, retry_after, policy):
    return backoff(
        attempt, base=policy.backoff_base, cap=policy.backoff_cap, floor=policy.backoff_floor
    )
