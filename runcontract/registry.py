"""Every concrete run model of the project."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from django.apps import apps
from django.db.models import Model

from .lifecycle.table import Table, table_of
from .models import RunContract


def is_run_model(model: type[Model]) -> TypeGuard[type[RunContract]]:
    """Whether a model is a run table of its own; a proxy is not."""
    return issubclass(model, RunContract) and not model._meta.proxy


def run_models() -> list[type[RunContract]]:
    """The concrete run models, in the order of their labels."""
    found = [model for model in apps.get_models() if is_run_model(model)]
    return sorted(found, key=lambda model: model._meta.label_lower)


def tables() -> Iterator[Table]:
    """The table of each run model."""
    return (table_of(model) for model in run_models())


def aliases() -> list[str]:
    """The databases that hold run tables."""
    return sorted({table.alias for table in tables()})
