"""The constraints and indexes that every run table carries.

The two UNIQUE constraints are the lock and the idempotency; the CHECKs say which rows cannot
exist; the indexes serve exactly the queries that run all the time. None covers `heartbeat_at`:
heartbeats must stay HOT updates.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from .states import ACTIVE, TERMINAL, Failure, State

NAME_LIMIT = 63
"""Postgres cuts identifiers here, in bytes."""

_IS_ACTIVE = Q(state__in=[str(state) for state in ACTIVE])
_IS_TERMINAL = Q(state__in=[str(state) for state in TERMINAL])
_IS_FAILED = Q(state=str(State.FAILED))


class ContractIndex(models.Index):
    """An index that Django lets have any name, rather than Oracle's 30 letters.

    What is too long for Postgres is said by runcontract.E011, which names the remedy.
    """

    max_name_length = 1000


def _named(suffix: str) -> str:
    return f"%(app_label)s_%(class)s_{suffix}"


def _check(suffix: str, condition: Q) -> models.CheckConstraint:
    return models.CheckConstraint(condition=condition, name=_named(suffix))


def contract_constraints() -> list[models.BaseConstraint]:
    """Fresh constraints for an abstract Meta."""
    return [
        models.UniqueConstraint(fields=["lock_key"], condition=_IS_ACTIVE, name=_named("lock")),
        models.UniqueConstraint(
            fields=["job_id"], condition=Q(released_at__isnull=True), name=_named("job_id")
        ),
        _check("keys", ~Q(job_id="") & (Q(lock_key__isnull=True) | ~Q(lock_key=""))),
        _check("state", Q(state__in=[str(state) for state in State])),
        _check(
            "running",
            ~Q(state=str(State.RUNNING))
            | (Q(heartbeat_at__isnull=False, lease__gte=1) & ~Q(worker="")),
        ),
        _check(
            "active",
            ~_IS_ACTIVE
            | Q(finished_at__isnull=True, held_until__isnull=True, released_at__isnull=True),
        ),
        _check("terminal", ~_IS_TERMINAL | Q(finished_at__isnull=False, held_until__isnull=False)),
        _check(
            "failure",
            (_IS_FAILED & Q(failure__in=[str(failure) for failure in Failure]))
            | (~_IS_FAILED & Q(failure="")),
        ),
    ]


def contract_indexes(*queued_by: str) -> list[models.Index]:
    """Fresh indexes for an abstract Meta; `queued_by`: what orders the queued rows of a lane."""
    running, queued = Q(state=str(State.RUNNING)), Q(state=str(State.QUEUED))
    held = _IS_TERMINAL & Q(released_at__isnull=True)
    parts: list[tuple[str, list[str], Q | None]] = [
        ("by_job_id", ["job_id"], None),
        ("queued", ["lane", *queued_by], queued),
        ("by_worker", ["worker"], running),
        ("failures", ["-finished_at"], _IS_FAILED),
        ("held", ["held_until"], held),
    ]
    return [
        ContractIndex(fields=fields, condition=condition, name=_named(suffix))
        for suffix, fields, condition in parts
    ]


def expected_names(model: Any) -> set[str]:
    """The names that a concrete run model's constraints and indexes must have."""
    values = {"app_label": model._meta.app_label.lower(), "class": model.__name__.lower()}
    constraints = {item.name % values for item in contract_constraints()}
    return constraints | {item.name % values for item in contract_indexes("dispatched_at")}
