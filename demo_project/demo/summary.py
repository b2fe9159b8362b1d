"""The end in the terminal: figures, failures and their homes, what was done again, what holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from demo_project.agents.models import AgentRun
from demo_project.harvester.models import DeadLetter
from demo_project.knowledge.models import CurationRun
from demo_project.notifications.models import Delivery

from .checks import Check
from .counts import Snapshot
from .models import Story
from .progress import table

AGAIN = {
    "harvester": "dlq_retry",
    "knowledge": "new pass",
    "agents": "asked again",
    "notifications": "resent",
}
"""Each app's word for doing it again, which is the story's step."""


def summary(console: Console, story: Story, snapshot: Snapshot, found: Iterable[Check]) -> None:
    """The end: figures, dead letters, and what holds."""
    for part in (table(snapshot), dead_letters(), failures(story), again(story)):
        console.print(part)
    for check in found:
        mark = "[green]holds[/]" if check.holds else "[red bold]FAILS[/]"
        console.print(f"{mark}  {check.claim}", highlight=False)
        for fact in check.against[:10]:
            console.print(f"       {escape(fact)}", highlight=False)


def dead_letters() -> Table:
    """The open ones, each with its cause."""
    drawn = _table("dead letter", "failure", "cause")
    for letter in DeadLetter.objects.open().select_related("source").order_by("source__name"):
        drawn.add_row(letter.source.name, letter.failure, escape(letter.cause))
    return drawn


def failures(story: Story) -> Table:
    """What failed for good in the other apps, where its home is, and why."""
    drawn = _table("not done", "home of the failure", "cause")
    for row in _failures(story):
        drawn.add_row(*map(escape, row))
    return drawn


def again(story: Story) -> Table:
    """What was done again, and how."""
    drawn = _table("app", "again means", "what was done")
    for app, step in AGAIN.items():
        drawn.add_row(app, step, escape(story.told.get(step, "not reached")))
    return drawn


def _failures(story: Story) -> Iterator[tuple[str, str, str]]:
    for run in CurationRun.objects.filter(state="failed", finished_at__gte=story.began):
        yield f"pass {run.pk}", "the run, then a new pass", (run.last_error or {})["message"]
    for run in AgentRun.objects.filter(state="failed", finished_at__gte=story.began):
        yield run.question, "the run, with a notice", (run.last_error or {})["message"]
    for row in Delivery.objects.filter(state="failed", finished_at__gte=story.began):
        yield f"to {row.recipient}", "the delivery's row", row.not_delivered


def _table(*columns: str) -> Table:
    drawn = Table(*columns, box=None, header_style="bold", padding=(0, 2))
    drawn.columns[0].no_wrap = True
    return drawn
