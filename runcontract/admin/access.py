"""What one person may see and do, by the permissions of each consumer's own model."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.admin.utils import quote
from django.contrib.auth import get_permission_codename
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse

from ..lifecycle.table import Table
from ..monitor.listings import Source
from ..registry import tables


class Access:
    """One person on one admin site.

    A model that is registered there decides by its ModelAdmin: which permissions count, and which
    rows its queryset has. Any other one by Django's permissions for it.
    """

    def __init__(self, site: AdminSite, request: HttpRequest) -> None:
        self._site, self._request = site, request

    @cached_property
    def sources(self) -> list[Source]:
        """The run tables that this person may look at."""
        return [Source(table, self._rows(table)) for table in tables() if self._may_view(table)]

    def source(self, label: str) -> Source | None:
        """The run table of a label, if this person may look at it."""
        return next((each for each in self.sources if each.table.label == label), None)

    def may_change(self, table: Table, run: Any = None) -> bool:
        """Whether this person may change runs of a table, or this very one."""
        own = self._admin_of(table)
        if own is not None:
            return own.has_change_permission(self._request, run)
        return self._has("change", table)

    def address(self, table: Table, pk: Any) -> str:
        """Where this person finds a run's own admin page; empty if it has none."""
        if self._admin_of(table) is None:
            return ""
        meta = table.model._meta
        view = f"{self._site.name}:{meta.app_label}_{meta.model_name}_change"
        return reverse(view, args=[quote(pk)])

    def _may_view(self, table: Table) -> bool:
        own = self._admin_of(table)
        if own is not None:
            return own.has_view_permission(self._request)
        return self._has("view", table) or self._has("change", table)

    def _rows(self, table: Table) -> QuerySet[Any]:
        own = self._admin_of(table)
        return table.model._base_manager.all() if own is None else own.get_queryset(self._request)

    def _admin_of(self, table: Table) -> ModelAdmin[Any] | None:
        known = self._site.is_registered(table.model)
        return self._site.get_model_admin(table.model) if known else None

    def _has(self, action: str, table: Table) -> bool:
        meta = table.model._meta
        codename = get_permission_codename(action, meta)
        return bool(self._request.user.has_perm(f"{meta.app_label}.{codename}"))
