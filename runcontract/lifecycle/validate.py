"""What enqueue refuses before any row or message exists, each as one sentence."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections
from django.db.models import (
    CharField,
    DateField,
    Field,
    FileField,
    IntegerField,
    JSONField,
    TimeField,
)

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
    plain = str.__str__(value)  # of an enum's member too
    check_text(name, plain)
    return plain


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


def check_own(table: Table, own: Collection[str]) -> None:
    """The names of the consumer's own fields. Raises InvalidRun for one that is not."""
    known = {name for field in table.own_fields for name in (field.name, field.attname)}
    for name in own:
        if name not in known:
            raise InvalidRun(f"{table.label} has no field {name!r} that enqueue could set.")


def check_storable(table: Table, run: Any) -> None:
    """The values of the consumer's own fields, given or by default. Raises InvalidRun."""
    for field in table.own_fields:
        value = getattr(run, field.attname)
        if value is None:
            _check_missing(field, run)
        elif not _is_expression(value):
            _check_value(table, field, value)


def _is_expression(value: Any) -> bool:
    return hasattr(value, "resolve_expression")


def _check_missing(field: Any, run: Any) -> None:
    if field.is_relation and field.is_cached(run) and field.get_cached_value(run) is not None:
        raise InvalidRun(f"{field.name} is not saved yet, so it cannot be referred to.")
    if not (field.null or field.primary_key or _fills_itself(field)):
        raise InvalidRun(f"{field.name} needs a value.")


def _fills_itself(field: Field[Any, Any]) -> bool:
    if isinstance(field, DateField | TimeField):
        return field.auto_now or field.auto_now_add
    return type(field).pre_save is not Field.pre_save


def _check_value(table: Table, field: Field[Any, Any], value: Any) -> None:
    try:
        if isinstance(value, str):
            field.to_python(value)
        field.get_db_prep_save(value, connections[table.alias])
        plain = field.get_prep_value(value)
    except ValidationError as error:
        raise InvalidRun(f"{field.name}: {' '.join(error.messages)}") from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InvalidRun(f"{field.name} cannot be stored: {error}") from error
    if isinstance(field, JSONField):
        _check_json(field, value)
    else:
        _check_texts(field.name, plain)
        _check_size(table, field, plain)


def _check_texts(name: str, value: Any) -> None:
    if isinstance(value, str):
        check_text(name, value)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_texts(name, item)


def _check_size(table: Table, field: Any, plain: Any) -> None:
    column = field.target_field if field.is_relation else field
    if isinstance(column, IntegerField) and isinstance(plain, int):
        kind = column.get_internal_type()
        low, high = connections[table.alias].ops.integer_field_range(kind)
        if not low <= plain <= high:
            raise InvalidRun(f"{field.name} must be from {low} to {high}, not {plain}.")
    if isinstance(column, CharField | FileField) and isinstance(plain, str):
        limit = column.max_length
        if limit is not None and len(plain) > limit:
            raise InvalidRun(f"{field.name} has {len(plain)} characters; {limit} are allowed.")


def _check_json(field: JSONField, value: Any) -> None:
    name = field.name
    try:
        text = json.dumps(value, cls=field.encoder, ensure_ascii=False, allow_nan=False)
        changed = field.encoder is None and json.loads(text) != value
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRun(f"{name} cannot be stored as JSON: {error}") from None
    if changed:
        raise InvalidRun(
            f"{name} would come back from JSON as something else: a tuple as a list, "
            "a key that is not a text as one."
        )
    if "\\u0000" in text.replace("\\\\", ""):
        raise InvalidRun(f"{name} holds a NUL character, which Postgres cannot store.")
    check_text(name, text)


def differing(table: Table, names: Sequence[str], wanted: Any, has: Any) -> tuple[str, ...]:
    """Those of the named fields in which a stored run is not what is wanted."""
    found = []
    for name in names:
        field: Any = table.model._meta.get_field(name)
        value = getattr(wanted, field.attname)
        if not _is_expression(value) and _as_stored(field, value) != getattr(has, field.attname):
            found.append(name)
    return tuple(found)


def _as_stored(field: Any, value: Any) -> Any:
    if value is not None and isinstance(field, JSONField):
        return json.loads(json.dumps(value, cls=field.encoder), cls=field.decoder)
    return field.to_python(value)
