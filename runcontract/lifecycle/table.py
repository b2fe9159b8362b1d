"""The SQL face of a run model: quoted names, and rows that become instances again."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.db import connections
from django.db.models import Model, UUIDField

from ..contract.address import Address
from ..contract.fields import RETRY_FIELDS, contract_fields
from ..contract.policy import EffectivePolicy
from .database import write_alias


class Table:
    """One run model as the statements need it. Built once per model."""

    def __init__(self, model: type[Model]) -> None:
        meta = model._meta
        self.model = model
        self.label = meta.label_lower
        self.name = quote(meta.db_table)
        self.pk = quote(meta.pk.column)
        self.fields = list(meta.concrete_fields)
        contract = contract_fields([field.name for field in self.fields])
        self.counts = contract.issuperset(RETRY_FIELDS)
        """Whether the model has the attempt counter and the deferred start of RetryContract."""
        self.own_fields = [
            field for field in self.fields if field.name not in contract and not field.generated
        ]
        """The consumer's own columns, the primary key among them."""
        self.columns = ", ".join(f"{self.name}.{quote(field.column)}" for field in self.fields)
        self._attnames = [field.attname for field in self.fields]
        self._converters: dict[str, list[tuple[int, Any, Any]]] = {}

    @property
    def alias(self) -> str:
        """The database of this table's rows."""
        return write_alias(self.model)

    @property
    def policy(self) -> EffectivePolicy:
        """The policy of this model, gaps filled by the settings."""
        return self.model.policy.effective()  # type: ignore[attr-defined,no-any-return]

    def accepts(self, pk: int | uuid.UUID) -> bool:
        """Whether a key is of the kind that this table has; a forged message may name another."""
        return isinstance(pk, uuid.UUID) == isinstance(self.model._meta.pk, UUIDField)

    def address(self, pk: int | uuid.UUID, lease: int) -> Address:
        return Address(self.label, pk, lease)

    def build(self, alias: str, row: Sequence[Any]) -> Any:
        """An instance of the model from a row of `self.columns`."""
        values = list(row)
        for position, converter, column in self._converters_for(alias):
            values[position] = converter(values[position], column, connections[alias])
        return self.model.from_db(alias, self._attnames, values)

    def _converters_for(self, alias: str) -> list[tuple[int, Any, Any]]:
        if alias not in self._converters:
            connection = connections[alias]
            self._converters[alias] = [
                (position, converter, column)
                for position, field in enumerate(self.fields)
                for column in [field.get_col(self.model._meta.db_table)]
                for converter in [
                    *connection.ops.get_db_converters(column),
                    *column.get_db_converters(connection),
                ]
            ]
        return self._converters[alias]


def quote(name: str | None) -> str:
    """An identifier as Django quotes it, safe in a text that also carries %s placeholders."""
    plain = name or ""
    quoted = plain.startswith('"') and plain.endswith('"')
    return (plain if quoted else f'"{plain}"').replace("%", "%%")


_tables: dict[type[Model], Table] = {}


def table_of(model: type[Model]) -> Table:
    """The table of a run model."""
    if model not in _tables:
        _tables[model] = Table(model)
    return _tables[model]


def table_at(label: str) -> Table | None:
    """The table that a label names; None if no run model has that label."""
    try:
        model = apps.get_model(label)
    except (LookupError, ValueError):
        return None
    return table_of(model) if hasattr(model, "policy") and hasattr(model, "perform") else None
