"""The names of the columns that belong to the contract; every other one is the consumer's own."""

from __future__ import annotations

from collections.abc import Collection

RUN_FIELDS = (
    "job_id",
    "lock_key",
    "lane",
    "state",
    "failure",
    "lease",
    "worker",
    "heartbeat_at",
    "last_error",
    "fingerprint",
    "stats",
    "rerun_requested",
    "cancel_requested",
    "queued_at",
    "dispatched_at",
    "started_at",
    "finished_at",
    "held_until",
    "released_at",
)
RETRY_FIELDS = ("attempts", "next_retry_at")


def contract_fields(names: Collection[str]) -> frozenset[str]:
    """Those of a model's fields that belong to the contract; a plain run may have its own
    `attempts`.
    """
    counts = set(RETRY_FIELDS) <= set(names)
    return frozenset(RUN_FIELDS + RETRY_FIELDS if counts else RUN_FIELDS)
