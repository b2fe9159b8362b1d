"""What is kept of an error: bounded, masked, readable, whatever the exception tries.

Nothing here is ever pickled and no local variable is stored. Limits are in characters: a message
keeps its first 8,000, a traceback 24,000 around its middle, the history ten earlier attempts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .masking import clean, redacted
from .tracebacks import raw_traceback, safe_text, type_name

__all__ = ["RunError", "as_json", "clean", "describe", "fingerprint"]

MESSAGE_LIMIT = 8_000
TRACEBACK_LIMIT = 24_000
HISTORY_LIMIT = 10
HISTORY_MESSAGE_LIMIT = 500
STEPS_LIMIT = 200
_PRE_CUT = 262_144
"""Masking sees this much, far more than is kept, so that no secret is cut in two and survives."""


@dataclass(frozen=True)
class RunError:
    """Why a run failed, as `on_failed(error)` receives it and as it is stored."""

    type: str
    """The class, with its module unless it is built in."""
    message: str
    traceback: str
    attempt: int
    failure: str = ""
    """A contract.states.Failure; empty while attempts are left."""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def describe(
    exc: BaseException, *, attempt: int, redact: Callable[[str], str] | None = None
) -> RunError:
    """The error of an exception. Never raises, and returns within a second or two."""
    return RunError(
        type=type_name(exc),
        message=_cut(_stored(safe_text(exc), redact), MESSAGE_LIMIT),
        traceback=_cut_middle(_stored(raw_traceback(exc), redact), TRACEBACK_LIMIT),
        attempt=attempt,
    )


def _stored(text: str, redact: Callable[[str], str] | None) -> str:
    left_out = len(text) - _PRE_CUT
    kept = clean(redacted(text[:_PRE_CUT], redact))
    return f"{kept}… [{left_out:,} more characters]" if left_out > 0 else kept


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    said = re.search(r"… \[([\d,]+) more characters\]$", text)
    more = len(text) - limit + (int(said[1].replace(",", "")) if said else 0)
    return f"{text[:limit]}… [{more:,} more characters]"


def _cut_middle(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… [{len(text) - limit:,} characters left out] …\n{text[-half:]}"


_VARYING = re.compile(
    r"0x[0-9a-f]+|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b[0-9a-f]{12,}\b|'[^'\n]{0,500}'|\"[^\"\n]{0,500}\"|\d+",
    re.IGNORECASE,
)


def fingerprint(error: RunError) -> str:
    """Twelve hex digits of the type and the message without what varies, for grouping."""
    masked = _VARYING.sub("#", error.message[:1000])
    return hashlib.sha256(f"{error.type}\n{masked}".encode()).hexdigest()[:12]


def as_json(
    error: RunError,
    *,
    previous: Mapping[str, Any] | None,
    steps: Sequence[Mapping[str, Any]] | None,
) -> dict[str, Any]:
    """The `last_error` document. `previous`, the one before it, becomes part of its history."""
    return {
        "type": error.type,
        "message": error.message,
        "traceback": error.traceback,
        "attempt": error.attempt,
        "failure": error.failure,
        "steps": list(steps or [])[:STEPS_LIMIT],
        "history": _history(previous),
    }


def _history(previous: Any) -> list[dict[str, Any]]:
    """Earlier attempts, the latest first; what is malformed is left out."""
    if not isinstance(previous, Mapping) or not previous.get("type"):
        return []
    older = previous.get("history")
    older = [item for item in older if isinstance(item, Mapping)] if isinstance(older, list) else []
    return [_brief(item) for item in [previous, *older][:HISTORY_LIMIT]]


def _brief(item: Mapping[str, Any]) -> dict[str, Any]:
    attempt = item.get("attempt")
    return {
        "type": clean(str(item.get("type", "")))[:200],
        "message": clean(str(item.get("message", "")))[:HISTORY_MESSAGE_LIMIT],
        "attempt": attempt if isinstance(attempt, int) else None,
        "at": clean(str(item.get("at", "")))[:40],
    }
