"""Retry-After, in every form that servers and consumers give it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

LONGEST = timedelta(days=366)
"""Who asks for more than a year is not believed."""
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
_LONGEST_TEXT = 100


def parse_retry_after(value: Any, *, now: datetime | None = None) -> timedelta | None:
    """How long to wait from `now` (the present) on; None if `value` does not say. Never raises.

    Read are: seconds as a number or as text (bytes, too), a timedelta, a datetime, an HTTP date in
    each of its three forms. A date text without a zone is UTC, as HTTP's are; a naive datetime
    is local time, as Python's are. What is negative, past, beyond a year, NaN, infinite or not
    readable is None.
    """
    try:
        wait = _read(value, now or datetime.now(UTC))
        return wait if wait is not None and timedelta(0) <= wait <= LONGEST else None
    except Exception:  # noqa: BLE001 -- what cannot be read asks for nothing, whatever its reason
        return None


def _read(value: Any, now: datetime) -> timedelta | None:
    if isinstance(value, bytes):
        value = value.decode("ascii")
    if isinstance(value, str):
        value = _read_text(value.strip())
    if isinstance(value, datetime):
        return value.astimezone(UTC) - now
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(seconds=value)
    return value if isinstance(value, timedelta) else None


def _read_text(text: str) -> float | datetime | None:
    if _SECONDS.fullmatch(text):
        return float(text)
    if not text.isascii() or len(text) > _LONGEST_TEXT:
        return None
    date = parsedate_to_datetime(text)
    return date if date.tzinfo else date.replace(tzinfo=UTC)
