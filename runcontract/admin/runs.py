"""The ground of a consumer's own ModelAdmin for runs."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import F, QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Left, Now
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ..contract.fields import contract_fields
from ..lifecycle.table import table_of
from ..monitor.failures import ERROR_MESSAGE, ERROR_TYPE
from ..monitor.words import NO_NUMBER, span_in_words
from . import moves

HEAVY = ("last_error", "stats")
"""Columns that a list never loads."""


ROWS = 10_000
"""What a list counts and turns its pages to; further down, one narrows it or searches."""


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than ROWS, however many rows there are."""

    @cached_property
    def count(self) -> int:
        rows = cast("QuerySet[Any]", self.object_list)
        return rows.order_by().values("pk")[:ROWS].count()


class RunContractAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows what transitions wrote and lets nobody write it; redo and cancel row by row.

    Your own columns are edited as in any ModelAdmin. Nothing can be added: `enqueue` does that.
    """

    list_display = ["job_id", "state_word", "attempts_word", "age", "error"]
    list_filter = ["state", "failure"]
    search_fields = ["job_id__exact", "lock_key__exact"]
    search_help_text = "A whole job_id or lock key."
    ordering = ["-pk"]
    show_full_result_count = False
    paginator = CappedPaginator
    actions = ["redo", "cancel"]

    class Media:
        css = {"all": ["runcontract/runs.css"]}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """The contract's columns, and the error and its traceback as text."""
        own = [str(name) for name in super().get_readonly_fields(request, obj)]
        return [*own, *self._contract_columns(), "cause", "traceback"]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Your own fields first; a `fieldsets` of yours is taken as it is."""
        if self.fieldsets:
            return self.fieldsets
        columns = self._contract_columns()
        shown = {*columns, "cause", "traceback"}
        own = [name for name in self.get_fields(request, obj) if name not in shown]
        parts: list[Any] = [(None, {"fields": own})] if own else []
        if obj is not None and obj.last_error:
            parts.append(("Last error", {"fields": ["cause", "traceback"]}))
        return [*parts, ("Run", {"fields": columns})]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """From the database that the runs are written to; big columns only when asked for."""
        rows: QuerySet[Any] = super().get_queryset(request).using(table_of(self.model).alias)
        beginning = rows.defer(*HEAVY).annotate(
            run_now=Now(),
            run_error_type=Left(KeyTextTransform("type", "last_error"), ERROR_TYPE),
            run_error_message=Left(KeyTextTransform("message", "last_error"), ERROR_MESSAGE),
        )
        return cast("QuerySet[Any]", beginning)

    @admin.display(description="state", ordering="state")
    def state_word(self, run: Any) -> SafeString:
        """The state, and why a failed run failed, in words and a colour."""
        word = "waiting" if _waits(run) else run.state
        return format_html(
            '<span class="run-state run-{}">{}</span> <span class="run-why">{}</span>',
            word,
            word,
            run.failure,
        )

    @admin.display(description="attempts")
    def attempts_word(self, run: Any) -> str:
        """The counter, if this model has one."""
        return str(getattr(run, "attempts", NO_NUMBER))

    @admin.display(description="age", ordering=F("queued_at").desc())
    def age(self, run: Any) -> SafeString:
        """Since it ended, started or was queued; the exact time is in the title."""
        since = run.finished_at or run.started_at or run.queued_at
        span = span_in_words(run.run_now - since)
        return format_html(
            '<time class="run-age" datetime="{}" title="{}">{}</time>',
            since.isoformat(),
            since,
            span,
        )

    @admin.display(description="error")
    def error(self, run: Any) -> SafeString | str:
        """The beginning of the last error."""
        if not run.run_error_type:
            return ""
        parts = run.run_error_type, run.run_error_message or ""
        return format_html('<bdi class="run-text"><b>{}</b> {}</bdi>', *parts)

    @admin.display(description="error")
    def cause(self, run: Any) -> SafeString:
        """The last error in full."""
        error = run.last_error or {}
        parts = error.get("type", ""), error.get("message", "")
        return format_html('<bdi class="run-text"><b>{}</b> {}</bdi>', *parts)

    @admin.display(description="traceback")
    def traceback(self, run: Any) -> SafeString | str:
        """The whole of it, its lines as they are."""
        text = (run.last_error or {}).get("traceback", "")
        return format_html('<pre class="run-traceback">{}</pre>', text) if text else ""

    @admin.action(description="Redo the selected runs", permissions=["change"])
    def redo(self, request: HttpRequest, runs: QuerySet[Any]) -> None:
        self._carry_out(request, moves.redo, runs)

    @admin.action(description="Cancel the selected runs", permissions=["change"])
    def cancel(self, request: HttpRequest, runs: QuerySet[Any]) -> None:
        self._carry_out(request, moves.cancel, runs)

    def _carry_out(self, request: HttpRequest, move: moves.Move, runs: QuerySet[Any]) -> None:
        may = self.has_change_permission
        moves.carry_out(request, move, runs, lambda run: may(request, run))

    def _contract_columns(self) -> list[str]:
        names = [field.name for field in self.model._meta.concrete_fields]
        contract = contract_fields(names)
        return [name for name in names if name in contract and name != "last_error"]


def _waits(run: Any) -> bool:
    due = getattr(run, "next_retry_at", None)
    return run.state == "queued" and due is not None and due > run.run_now
