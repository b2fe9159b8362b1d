"""The front page: the story as it runs, read from the four apps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from demo_project.agents.models import NewestAnswer
from demo_project.harvester.models import DeadLetter
from demo_project.knowledge.graph import graph_as_json
from demo_project.knowledge.models import CurationRun, Entity
from demo_project.notifications.models import Delivery
from runcontract.lifecycle.table import table_of
from runcontract.monitor.failures import Row, page
from runcontract.monitor.listings import FAILED, Source
from runcontract.monitor.words import span_in_words

from .counts import Counts, consumers, count, database_time
from .models import Story
from .story import STEPS, newest

SHOWN = 10
"""Rows of each list; the rest is behind its link."""

EVER = datetime(1, 1, 1, tzinfo=UTC)

APPS = {
    "harvester": ("a dead-letter table", "dlq_retry picks the dead letters up"),
    "knowledge": ("the run's row", "the next pass, a new run"),
    "agents": ("the run's row", "somebody asks again, a new run"),
    "notifications": ("“not delivered” on the row itself", "resend, the same row"),
}
"""Each app's home of a failure, and its meaning of "again"."""

STATES = {"queued": "queued", "waiting": "queued", "running": "running"}
STATES |= {"succeeded": "succeeded", "failed": "failed"}


@dataclass(frozen=True)
class Line:
    """One run table."""

    counts: Counts
    address: str
    home: str
    again: str

    def figures(self) -> Iterator[tuple[str, int, str]]:
        """Word, number and where these runs are listed."""
        for word, state in STATES.items():
            yield word, getattr(self.counts, word), f"{self.address}?state__exact={state}"


@dataclass(frozen=True)
class Failed:
    """One failed run, its page in the admin, and how long ago it ended."""

    row: Row
    table: str
    address: str
    age: str


@require_safe
def story_page(request: HttpRequest) -> HttpResponse:
    """Everything as tables; a script refreshes them in place and draws the graph."""
    story, now = newest(), database_time()
    context = {
        **admin.site.each_context(request),
        "title": "The story",
        "is_nav_sidebar_enabled": False,
        "story": story,
        "steps": [(name, story.told.get(name, "") if story else "") for name in STEPS],
        "lines": lines(story),
        "dead_letters": DeadLetter.objects.open().count(),
        "answers": NewestAnswer.objects.order_by("-at")[:SHOWN],
        "deliveries": Delivery.objects.defer("body", "stats").order_by("-pk")[:SHOWN],
        "failures": list(failures()),
        **graph(now),
    }
    return TemplateResponse(request, "demo/front.html", context)


@require_safe
def story_graph(request: HttpRequest) -> JsonResponse:
    """The graph as the newest pass left it."""
    return JsonResponse(graph_as_json())


def lines(story: Story | None) -> list[Line]:
    """Each run table with this story's counts, in the order in which the story meets them."""
    since, order = story.began if story else EVER, [*APPS]
    models = sorted(consumers(), key=lambda model: order.index(model._meta.app_label))
    return [
        Line(count(model, since), _address(model), *APPS[model._meta.app_label]) for model in models
    ]


def failures() -> Iterator[Failed]:
    """The newest failures of the four apps."""
    tables = {table.label: table for table in map(table_of, consumers())}
    sources = [Source(table, table.model._default_manager.all()) for table in tables.values()]
    for row in page(sources, FAILED, limit=SHOWN).rows:
        model = tables[row.label].model
        address = _address(model, row.pk)
        yield Failed(row, model._meta.db_table, address, span_in_words(row.age))


def graph(now: datetime) -> dict[str, Any]:
    """The heaviest nodes, and which pass left them and when."""
    passes = CurationRun.objects.filter(state="succeeded").defer("stats")
    made = passes.order_by("finished_at").last()
    return {
        "entities": Entity.objects.order_by("-dependents", "-pulls_in", "name")[:SHOWN],
        "entity_count": Entity.objects.count(),
        "pass": made,
        "pass_age": span_in_words(now - made.finished_at) if made else "",
        "entity_address": _address(Entity, "NAME"),
    }


def _address(model: type[Model], pk: Any = None) -> str:
    """The admin page of a table, or of a row."""
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    return (
        reverse(f"{name}_changelist") if pk is None else reverse(f"{name}_change", args=[quote(pk)])
    )
