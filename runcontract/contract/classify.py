"""Which errors are worth another attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Verdict:
    """`transient`: run again. `retry_after`: what the other side asked for, as it said it."""

    transient: bool
    retry_after: Any = None
