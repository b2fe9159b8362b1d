"""The consumer's own code inside a transaction of ours: bounded, and unable to stop it."""

from __future__ import annotations

import logging
from typing import Any

from django.db import transaction

from ..conf import settings
from ..contract.errors import RunError, describe
from .database import execute
from .patience import patience

logger = logging.getLogger("runcontract.hooks")

STATEMENT_MS = "10000"
"""No statement of `on_failed` may hold up the settling transaction longer than this."""

HOOK_SECONDS = 30.0
"""Nor may the whole of it, where an alarm can end it: in a worker and in the scheduler."""

LIMIT = (
    "WITH before AS MATERIALIZED (SELECT current_setting('statement_timeout') AS value) "
    "SELECT value, set_config('statement_timeout', %s, true) FROM before"
)
"""The limit -> the one before, which the transaction, perhaps the caller's, has again after."""

HOOK_LEFT_OUT = {"on_failed": "not called: it broke the settling transaction each time before"}


def call_on_failed(alias: str, run: Any, error: RunError) -> dict[str, Any]:
    """Run `on_failed(error)` in a savepoint. What it raises is returned, to be stored."""
    name, before = f"{run._meta.label} {run.pk}", execute(alias, LIMIT, [STATEMENT_MS])[0][0]
    said = {}
    try:
        with patience(HOOK_SECONDS), transaction.atomic(using=alias):
            run.on_failed(error)
    except BaseException as problem:  # noqa: BLE001 - the run settles all the same
        told = describe(problem, attempt=error.attempt, redact=settings().redact)
        logger.error("on_failed of %s raised %s.", name, told.type)
        said = {"on_failed": f"{told.type}: {told.message}"[:2000]}
    execute(alias, LIMIT, [before])
    return said
