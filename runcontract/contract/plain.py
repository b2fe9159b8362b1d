"""Values that a JSON column takes."""

from __future__ import annotations

import math
from datetime import date, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any
from uuid import UUID

from .masking import mask
from .scribe import name_of
from .texts import beginning, clean

_TEXT, _ITEMS, _DEPTH = 512, 50, 4
"""Bytes of a text, items of a collection, levels of nesting; what is beyond is left out."""
_INTEGER = 2**63


def plain(value: Any, depth: int = _DEPTH) -> Any:
    """`value` as strict JSON knows it: no NaN, no strange keys, texts masked, clean and bounded.

    Times become ISO text, durations seconds; of an object of another kind only its class is left.
    """
    if isinstance(value, dict) and depth:
        items = islice(value.items(), _ITEMS)
        return {str(plain(key, 0)): plain(item, depth - 1) for key, item in items}
    if isinstance(value, list | tuple | set | frozenset) and depth:
        return [plain(item, depth - 1) for item in islice(value, _ITEMS)]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < _INTEGER:
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Decimal | UUID):
        value = str(value)
    elif isinstance(value, date):
        value = value.isoformat()
    if not isinstance(value, str):
        value = f"<{name_of(type(value))}>"
    return beginning(clean(mask(value[: 16 * _TEXT])), _TEXT)
