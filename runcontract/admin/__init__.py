"""The failure page, and the ground of consumers' own pages."""

from __future__ import annotations

from django.contrib import admin

from ..models import Failure
from .failures import FailureAdmin
from .runs import RunContractAdmin

__all__ = ["FailureAdmin", "RunContractAdmin"]

admin.site.register(Failure, FailureAdmin)
