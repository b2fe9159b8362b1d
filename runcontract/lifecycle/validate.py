"""What enqueue refuses before any row or message exists, each as one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from django.db.models import Field, JSONField

from ..contract.fields import CONTRACT_FIELDS
from ..exceptions import InvalidRun
from ..transport import lanes
from .table import Table

KEY_LIMIT = 255


def check_key(name: str, value: Any) -> str:
    """A job_id or a lock key as Postgres can keep it. Raises InvalidRun."""
    if not isinstance(value, str):
        raise InvalidRun(f"{name} must be a text, not {type(value).__name__}.")
    if not value:
        raise InvalidRun(f"{name} must not be empty.")
    if len(value) > KEY_LIMIT:
        raise InvalidRun(f"{name} has {len(value)} characters; {KEY_LIMIT} are allowed.")
    check_text(name, value)
    return value


def check_text(name: str, value: str) -> None:
    """Refuses what Postgres or UTF-8 cannot carry. Raises InvalidRun."""
    if "\x00" in value:
        raise InvalidRun(f"{name} holds a NUL character, which Postgres cannot store.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRun(f"{name} holds a lone surrogate, which is not text.") from None


def check_lane(lane: Any) -> str:
    """A lane that RQ_QUEUES names. Raises InvalidRun."""
    if lane not in lanes():
        known = ", ".join(lanes()) or "none"
        raise InvalidRun(f"There is no lane {lane!r} in RQ_QUEUES; it has {known}.")
    return str(lane)


def check_own(table: Table, own: Mapping[str, Any]) -> None:
    """The consumer's own fields: known, and storable. Raises InvalidRun."""
    known = _own_names(table)
    for name, value in own.items():
        if name not in known:
            raise InvalidRun(f"{table.label} has no field {name!r} that enqueue could set.")
        _check_value(known[name], name, value)


@cache
def _own_names(table: Table) -> dict[str, Field[Any, Any]]:
    fields = [field for field in table.fields if field.name not in CONTRACT_FIELDS]
    return {name: field for field in fields for name in (field.name, field.attname)}


def _check_value(field: Field[Any, Any], name: str, value: Any) -> None:
    if isinstance(value, str):
        check_text(name, value)
        if field.max_length and len(value) > field.max_length and not field.choices:
            raise InvalidRun(f"{name} has {len(value)} characters; {field.max_length} are allowed.")
    if isinstance(field, JSONField) and not hasattr(value, "resolve_expression"):
        _check_json(field, name, value)


def _check_json(field: JSONField, name: str, value: Any) -> None:
    try:
        text = json.dumps(value, cls=field.encoder, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRun(f"{name} cannot be stored as JSON: {error}") from None
    if "\\u0000" in text.replace("\\\\", ""):
        raise InvalidRun(f"{name} holds a NUL character, which Postgres cannot store.")
    check_text(name, text)
