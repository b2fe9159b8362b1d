"""Ordinary admin pages; adding a run asks its question."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from runcontract.admin import RunContractAdmin

from .models import AgentRun, NewestAnswer, ask


@admin.register(AgentRun)
class AgentRunAdmin(RunContractAdmin):
    """The journal of what was asked."""

    list_display = ["question", "asked_by", *RunContractAdmin.list_display[1:]]
    search_fields = [*RunContractAdmin.search_fields, "question", "asked_by"]
    readonly_fields = ["answer", "trace", "repeats"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """A question can be asked here."""
        return admin.ModelAdmin.has_add_permission(self, request)

    def save_model(self, request: HttpRequest, obj: AgentRun, form: Any, change: bool) -> None:
        """Ask what is new."""
        if change:
            super().save_model(request, obj, form, change)
        else:
            obj.pk = ask(obj.question, asked_by=obj.asked_by, budget=obj.step_budget).run.pk


@admin.register(NewestAnswer)
class NewestAnswerAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """What is known by now."""

    list_display = ["question", "text", "at"]
    search_fields = ["question", "text"]
