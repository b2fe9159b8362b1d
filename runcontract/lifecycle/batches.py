"""Work in batches: bounded statements, and somebody who is asked between two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

BATCH = 1000
"""Rows of one statement."""

Between = Callable[[], Any]
"""Called between two batches; what it raises ends the work there."""


def nothing() -> None:
    """Nobody wants to be asked."""
