"""What a project can get wrong, said before it hurts. None of these needs Redis.

Each check is registered by `runcontract.apps`; `docs/reference/checks.md` has them as a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Tags, register

from ..models import RunContract
from ..registry import is_run_model, run_models
from .database import database_problems
from .models import model_problems
from .project import project_problems

__all__ = ["check_databases", "check_project", "check_run_models"]


def _models(app_configs: Sequence[AppConfig] | None) -> list[type[RunContract]]:
    if app_configs is None:
        return run_models()
    return [model for config in app_configs for model in config.get_models() if is_run_model(model)]


@register(Tags.models)
def check_run_models(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Whether each run model carries the contract and can be addressed."""
    return [problem for model in _models(app_configs) for problem in model_problems(model)]


@register()
def check_project(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Whether settings, policies, lanes, schedules and commands can work together."""
    return list(project_problems(_models(app_configs)))


@register(Tags.database)
def check_databases(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Whether Postgres has what the contract needs; only for the aliases that were asked for."""
    return list(database_problems(_models(app_configs), databases or []))
