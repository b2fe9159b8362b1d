"""How a list tells a time span to people."""

from __future__ import annotations

from datetime import timedelta

NO_NUMBER = "\N{EN DASH}"
"""Stands where a model without a counter has no attempts to tell."""

_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def span_in_words(span: timedelta) -> str:
    """Its largest unit, rounded down: "3 hours". Less than a second is "a moment"."""
    seconds = int(span.total_seconds())
    for unit, size in _UNITS:
        number = seconds // size
        if number >= 1:
            return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
    return "a moment"
