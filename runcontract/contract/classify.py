"""Which errors are worth another attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Verdict:
    transient: bool
    retry_after: Any = None


def classify(exc, own=None):
    from ..exceptions import PermanentError

    return Verdict(not isinstance(exc, (PermanentError, TypeError)))
