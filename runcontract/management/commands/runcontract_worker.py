"""`manage.py runcontract_worker`: runworker, where another app owns that name."""

from __future__ import annotations

from .runworker import Command

__all__ = ["Command"]
