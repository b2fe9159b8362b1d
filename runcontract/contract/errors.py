"""What is stored of an error: always readable, never more than tens of kilobytes, no secrets.

Limits, in bytes of UTF-8: message 8 KB, traceback 24 KB, ten earlier attempts of about 1 KB each,
step stats 24 KB. The class and the beginning of the message always survive, and a text that was
cut says so. Where the consumer's REDACT hook fails, its text is not stored at all: a message that
is missing is a nuisance, one that leaks cannot be taken back.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .guard import guarded
from .plain import plain
from .scribe import Scribe, name_of
from .texts import beginning, both_ends, clean
from .tracebacks import LIMIT as TRACEBACK_LIMIT
from .tracebacks import render

__all__ = ["RunError", "as_json", "clean", "describe", "fingerprint"]

MESSAGE_LIMIT = 8 * 1024
_SHORT, _NAME, _AT = 1024, 300, 64
"""Bytes of an earlier attempt's message, of a class name, of a time."""
HISTORY = 10
"""Earlier attempts that are kept, the newest first."""
STEPS, _STEPS_LIMIT = 200, 24 * 1024
"""The last steps that are kept, while they are no longer than this."""
_SECONDS = 0.9
"""For each part of an error; a part that takes longer is given up."""


@dataclass(frozen=True)
class RunError:
    """An error as it is stored, and as `on_failed` gets it: every text masked, clean, bounded."""

    type: str
    """The qualified name of the exception's class, "module.Class"; builtins without module."""
    message: str
    traceback: str
    attempt: int
    failure: str = ""
    """A `Failure`, once it is known why the run failed."""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def describe(
    exc: BaseException, *, attempt: int, redact: Callable[[str], str] | None = None
) -> RunError:
    """What may be stored of `exc`. Takes well under a second and never raises, whatever it does.

    The time limit needs the main thread; `guard` says what no limit can end. `redact` is the
    consumer's hook, applied after the built-in masking.
    """
    scribe = Scribe(redact)
    return RunError(
        type=_shielded(lambda: name_of(type(exc))),
        message=_shielded(lambda: scribe.message(exc, MESSAGE_LIMIT)),
        traceback=_shielded(lambda: render(exc, scribe)),
        attempt=attempt,
    )


def _shielded(part: Callable[[], str]) -> str:
    return guarded(part, lambda error: f"<not stored: {name_of(type(error))}>", _SECONDS)


_VARIABLE = (
    (re.compile(r"""(?<!\w)(['"])[^'"\n]*\1(?!\w)"""), "'…'"),  # quoted texts
    (re.compile(r"(?<![\w-])[\w-]*\d[\w.:+-]*|\b[0-9a-f]{8,}\b"), "#"),  # numbers, ids, times
    (re.compile(r"#(?:[\s,;/|]+#)+"), "#"),  # lists of them
    (re.compile(r"\s+"), " "),
)


def fingerprint(error: RunError) -> str:
    """12 hex digits, alike for errors of one class that differ in numbers, ids, times, quotes."""
    message = error.message
    for pattern, common in _VARIABLE:
        message = pattern.sub(common, message)
    return hashlib.sha256(f"{error.type}\n{message}".encode(errors="replace")).hexdigest()[:12]


def as_json(
    error: RunError,
    *,
    previous: Mapping[str, Any] | None,
    steps: Sequence[Mapping[str, Any]] | None,
) -> dict[str, Any]:
    """The document of `last_error`, which every JSON encoder and Postgres take.

    `previous` is the document that this one replaces; it becomes the first entry of `history`.
    SQL adds "at". Steps that did not fit are counted in "steps_cut".
    """
    kept, cut = guarded(lambda: _steps(steps or ()), lambda error: ([], 0), _SECONDS)
    document = {
        "type": _text(error.type, _NAME),
        "message": _text(error.message, MESSAGE_LIMIT),
        "traceback": both_ends(clean(error.traceback), TRACEBACK_LIMIT),
        "attempt": error.attempt,
        "failure": _text(error.failure, _NAME),
        "steps": kept,
        "history": _history(previous),
    }
    return document | {"steps_cut": cut} if cut else document


def _steps(steps: Sequence[Mapping[str, Any]]) -> tuple[list[Any], int]:
    kept = [plain(dict(step)) for step in steps[-STEPS:]]
    while len(json.dumps(kept)) > _STEPS_LIMIT:
        kept = kept[len(kept) // 2 + 1 :]
    return kept, len(steps) - len(kept)


def _history(previous: Any) -> list[dict[str, Any]]:
    if not isinstance(previous, Mapping):
        return []
    earlier = previous.get("history")
    entries = [previous, *(earlier if isinstance(earlier, list) else ())]
    return [_entry(entry) for entry in entries if _is_error(entry)][:HISTORY]


def _is_error(entry: Any) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("type"), str)


def _entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    attempt = entry.get("attempt")
    return {
        "type": _text(entry["type"], _NAME),
        "message": _text(entry.get("message"), _SHORT),
        "attempt": attempt if type(attempt) is int else None,
        "at": _text(entry.get("at"), _AT) or None,
    }


def _text(value: Any, limit: int) -> str:
    return beginning(clean(value), limit) if isinstance(value, str) else ""
