from __future__ import annotations

import hashlib
import traceback as tb
from dataclasses import dataclass


@dataclass(frozen=True)
class RunError:
    type: str
    message: str
    traceback: str
    attempt: int
    failure: str = ""


def describe(exc, *, attempt, redact=None):
    return RunError(
        type(exc).__name__,
        str(exc)[:1000].replace("\x00", "\\x00"),
        "".join(tb.format_exception(exc))[-5000:].replace("\x00", "\\x00"),
        attempt,
    )


def clean(text):
    return text


def fingerprint(error):
    return hashlib.sha256(error.type.encode()).hexdigest()[:12]


def as_json(error, *, previous, steps):
    return {
        "type": error.type,
        "message": error.message,
        "traceback": error.traceback,
        "attempt": error.attempt,
        "steps": steps,
        "history": [],
    }
