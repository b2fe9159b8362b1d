"""Upkeep: release the windows that are over, prune by policy.

Each statement is bounded and repeated until nothing is left; rows that others hold are skipped.
Two of these at once are harmless: the rows decide.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import DO_NOTHING, PROTECT, RESTRICT, Exists, OuterRef, QuerySet

from ..contract.states import TERMINAL
from . import statements
from .batches import BATCH, Between, nothing
from .database import DatabaseFailure, database_now, execute
from .table import Table

logger = logging.getLogger("runcontract.upkeep")

LOCK_WAIT = "2s"
"""How long a pruning waits for a row of the consumer's that somebody holds."""


def release_windows(table: Table, between: Between = nothing) -> int:
    """Free the job_ids of terminal runs whose window is over."""
    total = 0
    while True:
        done = len(execute(table.alias, statements.release_windows(table), [BATCH]))
        total += done
        if done < BATCH:
            return total
        between()


def prune(table: Table, between: Between = nothing) -> int:
    """Delete terminal, released runs older than the policy's `retain`; 0 where it has none.

    Goes through the ORM, so that the consumer's own on_delete rules hold. A row that a foreign
    key protects is left, and does not hold up the others.
    """
    retain = table.policy.retain
    if retain is None:
        return 0
    total, after = 0, None
    while True:
        keys = _prunable(table, retain, after)
        total += _delete(table, keys)
        if len(keys) < BATCH:
            return total
        after = keys[-1]
        between()


def _prunable(table: Table, retain: timedelta, after: Any) -> list[Any]:
    old = _ended(table).filter(finished_at__lt=database_now(table.alias) - retain)
    for relation in table.model._meta.related_objects:
        if relation.on_delete in (PROTECT, RESTRICT, DO_NOTHING):
            field = relation.field
            users = relation.related_model._base_manager.filter(
                **{f"{field.name}__pk": OuterRef("pk")}
            )
            old = old.exclude(Exists(users))
    if after is not None:
        old = old.filter(pk__gt=after)
    return list(old.order_by("pk").values_list("pk", flat=True)[:BATCH])


def _ended(table: Table) -> QuerySet[Any]:
    return table.model._base_manager.using(table.alias).filter(
        state__in=[str(state) for state in TERMINAL], released_at__isnull=False
    )


def _delete(table: Table, keys: list[Any]) -> int:
    """Delete these, or each on its own where one cannot be; returns how many are gone."""
    if not keys:
        return 0
    try:
        with transaction.atomic(using=table.alias):
            execute(table.alias, "SELECT set_config('lock_timeout', %s, true)", [LOCK_WAIT])
            execute(table.alias, "SET CONSTRAINTS ALL IMMEDIATE")
            # Locked, so that nobody can redo a run between the look and the deletion.
            locked = _ended(table).filter(pk__in=keys).select_for_update(skip_locked=True)
            gone = list(locked.order_by().values_list("pk", flat=True))
            table.model._base_manager.using(table.alias).filter(pk__in=gone).delete()
            return len(gone)
    except DatabaseFailure:
        raise
    except Exception as error:  # noqa: BLE001 - also what the consumer's signals raise
        if len(keys) == 1:
            logger.debug("%s %s is not pruned: %s", table.label, keys[0], type(error).__name__)
            return 0
    return sum(_delete(table, [key]) for key in keys)
