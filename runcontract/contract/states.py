"""The states of a run and the arrows between them, a sentence for each."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a run is."""

    QUEUED = "queued"
    """Waits for a worker, now or from `next_retry_at` on; holds its lock."""
    RUNNING = "running"
    """A worker holds the lease and its supervisor keeps the pulse; holds its lock."""
    SUCCEEDED = "succeeded"
    """`perform` returned. Terminal; holds its job_id until `held_until`."""
    FAILED = "failed"
    """It will not be run again by itself; `failure` says why. Terminal."""


class Failure(StrEnum):
    """Why a failed run failed; empty text for every other run."""

    PERMANENT = "permanent"
    """The error cannot be helped by running again."""
    EXHAUSTED = "exhausted"
    """A transient error, and no attempt is left."""
    TIMEOUT = "timeout"
    """The last attempt ran into the policy's timeout."""
    CANCELLED = "cancelled"
    """Somebody asked for it."""
    STALE = "stale"
    """The worker was lost: silent for too long, or seen to die by its supervisor."""


class OnLost(StrEnum):
    """What becomes of a run whose worker was lost."""

    FAIL = "fail"
    """failed/stale: it may have half-done its work, and again is the consumer's to say."""
    RETRY = "retry"
    """Queued again, while attempts are left and fewer than `max_lost` workers were lost."""


ACTIVE = (State.QUEUED, State.RUNNING)
TERMINAL = (State.SUCCEEDED, State.FAILED)

ARROWS: dict[str, tuple[tuple[State, ...], tuple[State, ...], str]] = {
    "claim": ((State.QUEUED,), (State.RUNNING,), "A worker takes the run and counts the attempt."),
    "defer": (
        (State.RUNNING,),
        (State.QUEUED,),
        "A transient failure: again, not before `next_retry_at`.",
    ),
    "give back": (
        (State.RUNNING,),
        (State.QUEUED,),
        "The worker stops; the attempt is refunded and the run is due at once.",
    ),
    "settle": (
        (State.RUNNING,),
        (State.SUCCEEDED, State.FAILED),
        "perform has ended for good: the lock is free, the idempotency window begins.",
    ),
    "reap": (
        (State.RUNNING,),
        (State.FAILED, State.QUEUED),
        "The worker was lost: failed/stale, or queued again where `on_lost` says so.",
    ),
    "cancel": (
        (State.QUEUED, State.RUNNING),
        (State.FAILED,),
        "Queued: at once. Running: asked, and settled by the worker.",
    ),
    "redo": ((State.FAILED,), (State.QUEUED,), "Somebody wants it done again."),
}
"""move: (from, to, what it means)"""
