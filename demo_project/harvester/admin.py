"""Ordinary admin pages."""

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from runcontract.admin import RunContractAdmin

from .models import DeadLetter, Harvest, HarvestRun, ReconcileRun, Source, retry_dead_letters


@admin.register(Source)
class SourceAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """What the origin lists."""

    list_display = ["name", "version", "listed", "generation"]
    list_filter = ["listed"]
    search_fields = ["name"]


@admin.register(Harvest)
class HarvestAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """What was harvested."""

    list_display = ["source", "version", "summary", "generation", "harvested_at"]
    list_select_related = ["source"]
    search_fields = ["source__name", "summary"]


@admin.register(DeadLetter)
class DeadLetterAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """What could not be harvested, and the one button for it."""

    list_display = ["source", "failure", "cause", "at", "picked_at"]
    list_filter = [("picked_at", admin.EmptyFieldListFilter), "failure"]
    list_select_related = ["source"]
    search_fields = ["source__name", "cause", "job_id"]
    actions = ["pick_up"]

    @admin.action(description="Harvest the sources again", permissions=["change"])
    def pick_up(self, request: HttpRequest, letters: QuerySet[DeadLetter]) -> None:
        """The same as `manage.py dlq_retry` with these names."""
        done = retry_dead_letters(list(letters.values_list("source__name", flat=True)))
        self.message_user(request, str(done), messages.SUCCESS)


@admin.register(HarvestRun)
class HarvestRunAdmin(RunContractAdmin):
    """The journal of the harvests."""

    list_select_related = ["source"]


@admin.register(ReconcileRun)
class ReconcileRunAdmin(RunContractAdmin):
    """The journal of the nightly looks."""
