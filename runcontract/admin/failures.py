"""The failure page: the runs of every table in one list, and redo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.forms import Media
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from ..models import Failure
from ..monitor.listings import Source
from . import moves
from .access import Access
from .listing import Screen

SEPARATOR = ":"
"""Between label and key in the value of a row's checkbox."""
CHANGELIST, REDO = "runcontract_failure_changelist", "runcontract_failure_redo"


class FailureAdmin(ModelAdmin):  # type: ignore[type-arg]
    """Registered for you. The permissions of each consumer's model decide row by row."""

    change_list_template = "admin/runcontract/failure/change_list.html"

    @property
    def media(self) -> Media:
        """What the list needs: the admin's own select-all, and a few colours."""
        return Media(js=["admin/js/actions.js"], css={"all": ["runcontract/runs.css"]})

    def get_urls(self) -> list[URLPattern]:
        """The list and its one action."""
        wrap = self.admin_site.admin_view
        return [
            path("", wrap(self.changelist_view), name=CHANGELIST),
            path("redo/", wrap(self.redo_view), name=REDO),
        ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Failure | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Failure | None = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Failure | None = None) -> bool:
        """Whoever may look at the runs of any model, or has the page's own permission."""
        own = request.user.has_perm("runcontract.view_failure")
        return bool(own or Access(self.admin_site, request).sources)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list. Changes nothing, whatever is asked."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        screen = Screen(Access(self.admin_site, request), request.GET)
        redo = reverse(f"{self.admin_site.name}:{REDO}")
        context = {
            **self.admin_site.each_context(request),
            "title": f"{screen.listing.name.capitalize()} runs",
            "opts": self.opts,
            "media": self.media,
            "cl": screen.changelist(self.opts),
            "actions_on_top": True,
            "action_form": screen.redoable,
            "screen": screen,
            "redo_url": f"{redo}?{urlencode(screen.query())}",
            **(extra_context or {}),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, self.change_list_template, context)

    def redo_view(self, request: HttpRequest) -> HttpResponse:
        """Redo the runs that were selected; each tells what it met."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        access = Access(self.admin_site, request)
        wanted = _selected(access, request.POST.getlist("run"))
        if not any(wanted.values()):
            messages.warning(request, "Nothing was done: no run that is still there was selected.")
        for source, keys in wanted.values():
            self._redo(request, access, source, keys)
        query = Screen(access, request.GET).query()
        changelist = reverse(f"{self.admin_site.name}:{CHANGELIST}")
        return HttpResponseRedirect(f"{changelist}?{urlencode(query)}")

    def _redo(self, request: HttpRequest, access: Access, source: Source, keys: list[Any]) -> None:
        table = source.table
        found = source.rows.using(table.alias).in_bulk(keys)
        for pk in keys:
            if pk not in found:
                gone = f"{table.model._meta.verbose_name} {pk}: it is gone; nothing was done."
                messages.warning(request, gone)
        runs = [found[pk] for pk in keys if pk in found]
        moves.carry_out(request, moves.redo, runs, lambda run: access.may_change(table, run))


def _selected(access: Access, values: list[str]) -> dict[str, tuple[Source, list[Any]]]:
    """label: its table and the keys that were selected there. What makes no sense is left out."""
    wanted: dict[str, tuple[Source, list[Any]]] = {}
    for source, pk in _parsed(access, dict.fromkeys(values)):
        wanted.setdefault(source.table.label, (source, []))[1].append(pk)
    return wanted


def _parsed(access: Access, values: dict[str, None]) -> Iterator[tuple[Source, Any]]:
    for value in values:
        label, _, key = value.partition(SEPARATOR)
        source = access.source(label)
        pk = None if source is None else source.key(key)
        if source is not None and pk is not None:
            yield source, pk
