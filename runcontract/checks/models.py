"""Each check of a run model: a few lines, one id, one remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import connections, models
from django.utils.connection import ConnectionDoesNotExist

from ..contract.constraints import NAME_LIMIT, expected_names
from ..lifecycle.database import write_alias
from ..models import RetryContract, RunContract

RunModel = type[RunContract]


def model_problems(model: RunModel) -> Iterator[CheckMessage]:
    """Everything that is wrong with one run model."""
    for check in (
        carries_the_contract,
        names_fit,
        leaves_the_pulse_alone,
        is_on_postgres,
        has_a_key_of_its_own,
        has_one_table,
        has_an_ascii_label,
        performs,
    ):
        yield from check(model)


def carries_the_contract(model: RunModel) -> Iterator[CheckMessage]:
    """E010: a Meta that does not inherit, or that assigns over what it inherited."""
    meta = model._meta
    names = {item.name for item in [*meta.constraints, *meta.indexes]}
    missing = sorted(expected_names(model) - names)
    if missing:
        base = "RetryContract" if issubclass(model, RetryContract) else "RunContract"
        yield Error(
            f"{meta.label} does not carry the contract's constraints and indexes: "
            f"{', '.join(missing)}.",
            hint=f"Write `class Meta({base}.Meta):`, and to add some of your own "
            f"`constraints = [*{base}.Meta.constraints, …]` and "
            f"`indexes = [*{base}.Meta.indexes, …]`. Then makemigrations and migrate.",
            obj=model,
            id="runcontract.E010",
        )


def names_fit(model: RunModel) -> Iterator[CheckMessage]:
    """E011: Postgres cuts names; two that are cut alike collide in migrate."""
    longest = max(expected_names(model), key=_size)
    if _size(longest) > NAME_LIMIT:
        over = _size(longest) - NAME_LIMIT
        yield Error(
            f"The name {model._meta.label} is too long: Postgres cuts {longest} at {NAME_LIMIT} "
            "bytes, and two of the contract's names that are cut alike collide in migrate.",
            hint=f"Shorten the model's class name or the app's label by {over} letters; "
            "db_table may stay as it is.",
            obj=model,
            id="runcontract.E011",
        )


def leaves_the_pulse_alone(model: RunModel) -> Iterator[CheckMessage]:
    """E012: an index that covers heartbeat_at makes each heartbeat rewrite every index."""
    for what in _indexed_with_the_pulse(model):
        yield Error(
            f"{what} of {model._meta.label} covers heartbeat_at, so no heartbeat is a HOT update.",
            hint="Leave heartbeat_at out of every index, its condition and its included columns.",
            obj=model,
            id="runcontract.E012",
        )


def is_on_postgres(model: RunModel) -> Iterator[CheckMessage]:
    """E013: the lock, the claim and the journal are Postgres's."""
    alias = write_alias(model)
    try:
        vendor = connections[alias].vendor
    except ConnectionDoesNotExist:
        vendor = "no database at all"
    if vendor != "postgresql":
        yield Error(
            f'{model._meta.label} is written to the database "{alias}", which is {vendor}.',
            hint="Run tables need PostgreSQL; route this model to one in DATABASE_ROUTERS.",
            obj=model,
            id="runcontract.E013",
        )


def has_a_key_of_its_own(model: RunModel) -> Iterator[CheckMessage]:
    """E014: the key is part of the message, in the letters that RQ takes."""
    key: Any = model._meta.pk
    if not isinstance(key, models.IntegerField | models.UUIDField):
        yield Error(
            f"The primary key of {model._meta.label} is a {type(key).__name__}; a run's address "
            "can carry only an integer or a UUID.",
            hint="Let Django make the primary key, or use a UUIDField.",
            obj=model,
            id="runcontract.E014",
        )


def has_one_table(model: RunModel) -> Iterator[CheckMessage]:
    """E015: a run's columns and guards are those of one table."""
    for parent in model._meta.parents:
        if issubclass(parent, RunContract) and not parent._meta.abstract:
            yield Error(
                f"{model._meta.label} inherits from {parent._meta.label}, which has a table of its "
                "own; one statement cannot guard a run that lies in two.",
                hint=f"Make what they share abstract, or {model._meta.object_name} a proxy.",
                obj=model,
                id="runcontract.E015",
            )


def has_an_ascii_label(model: RunModel) -> Iterator[CheckMessage]:
    """E016: the label is part of the message, in the letters that RQ takes."""
    if not model._meta.label.isascii():
        yield Error(
            f"{model._meta.label} has letters outside ASCII; a run's address cannot carry them.",
            hint="Rename the model or the app's label; verbose_name may hold any letter.",
            obj=model,
            id="runcontract.E016",
        )


def performs(model: RunModel) -> Iterator[CheckMessage]:
    """E017: a run model without work."""
    if model.perform is RunContract.perform:
        yield Error(
            f"{model._meta.label} has no perform(self, ctx); each of its runs would fail.",
            hint="Write it. Returning is success, raising is failure.",
            obj=model,
            id="runcontract.E017",
        )


def _size(name: str) -> int:
    return len(name.encode())


def _indexed_with_the_pulse(model: RunModel) -> Iterator[str]:
    meta = model._meta
    field = meta.get_field("heartbeat_at")
    if getattr(field, "db_index", False) or getattr(field, "unique", False):
        yield "The field itself"
    if any("heartbeat_at" in together for together in meta.unique_together):
        yield "unique_together"
    for item in [*meta.indexes, *meta.constraints]:
        if not isinstance(item, models.CheckConstraint) and _mentions_the_pulse(item):
            yield f"{type(item).__name__} {item.name}"


def _mentions_the_pulse(item: models.Index | models.BaseConstraint) -> bool:
    """Whether any part of it, in whatever expression, names the column."""
    _, args, kwargs = item.deconstruct()
    parts = {key: value for key, value in kwargs.items() if key != "name"}
    return "heartbeat_at" in repr((args, parts))
