"""Ordinary admin pages; adding a run asks its question."""

from typing import Any

from django.contrib import admin
from django.contrib.admin import ModelAdmin as RunContractAdmin
from django.http import HttpRequest

from .models import AgentRun, NewestAnswer, ask


@admin.register(AgentRun)
class AgentRunAdmin(RunContractAdmin):  # type: ignore[type-arg]
    """The journal of what was asked."""

    list_display = ["question", "asked_by", "state", "failure", "repeats", "queued_at"]
    list_filter = ["state", "failure"]
    search_fields = ["job_id", "question", "asked_by"]
    readonly_fields = ["answer", "trace", "repeats"]

    def save_model(self, request: HttpRequest, obj: AgentRun, form: Any, change: bool) -> None:
        """A new question is asked, which dispatches it on commit."""
        if change:
            super().save_model(request, obj, form, change)
        else:
            asked = ask(obj.question, asked_by=obj.asked_by, budget=obj.step_budget)
            obj.pk = asked.run.pk


@admin.register(NewestAnswer)
class NewestAnswerAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """What is known by now."""

    list_display = ["question", "text", "at"]
    list_select_related = ["run"]
    search_fields = ["question", "text"]
