"""`manage.py runcontract_scheduler`: runscheduler, where another app owns that name."""

from __future__ import annotations

from .runscheduler import Command

__all__ = ["Command"]
