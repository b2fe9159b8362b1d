"""Redo and cancel, row by row: what each met is a message to the person and a line in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.http import HttpRequest
from django.utils.html import format_html

from ..lifecycle.requests import ASKED, CANCELLED, GONE
from ..lifecycle.table import table_of

logger = logging.getLogger("runcontract.admin")

MESSAGES = 10
"""Runs that a press may move with a message for each; more are told in one."""


@dataclass(frozen=True)
class Outcome:
    """What became of one wish."""

    done: bool
    text: str


Move = Callable[[Any], Outcome]


def redo(run: Any) -> Outcome:
    """Do a failed run again, in its own way."""
    answer = run.redo()
    if answer:
        return Outcome(True, "queued again.")
    other = answer.run
    refusals = {
        "gone": "it is gone; nothing was done.",
        "not failed": f"it is already {other.state}; nothing was done.",
        "locked": f"not queued, for its lock is held by {other.job_id}, which is {other.state}.",
        "duplicate": f"not queued, for its job_id is held by run {other.pk}, "
        f"which is {other.state}.",
    }
    return Outcome(False, refusals.get(answer.reason, f"not queued: {answer.reason}."))


def cancel(run: Any) -> Outcome:
    """Cancel a run; a running one is asked."""
    answer = run.cancel()
    told = {
        CANCELLED: "cancelled.",
        ASKED: "asked to stop; its worker will cancel it.",
        GONE: "it is gone; nothing was done.",
    }
    return Outcome(
        answer in (CANCELLED, ASKED), told.get(answer, "it has ended; nothing was done.")
    )


def carry_out(
    request: HttpRequest, move: Move, runs: Iterable[Any], may: Callable[[Any], bool]
) -> None:
    """Move each run on its own, so that none holds up another; tell and log what each met."""
    done = []
    for run in runs:
        outcome = _one(request, move, run) if may(run) else Outcome(False, "you may not change it.")
        if outcome.done:
            done.append((run, outcome))
        else:
            messages.warning(request, told(run, outcome.text))
    if len(done) > MESSAGES:
        messages.success(request, f"{len(done)} runs: {done[0][1].text}")
    else:
        for run, outcome in done:
            messages.success(request, told(run, outcome.text))


def told(run: Any, text: str) -> str:
    """A sentence about a run, in which nothing that the run says can act or change the rest."""
    return format_html("{} <bdi>{}</bdi>: {}", name_of(run), run.job_id, text)


def name_of(run: Any) -> str:
    """What a person calls this kind of run, with a capital."""
    name = str(run._meta.verbose_name)
    return name[:1].upper() + name[1:]


def _one(request: HttpRequest, move: Move, run: Any) -> Outcome:
    try:
        with transaction.atomic(using=table_of(type(run)).alias):
            outcome = move(run)
            _log(request, run, f"{move.__name__.capitalize()}: {outcome.text}")
            return outcome
    except Exception as error:
        logger.exception("%s of %s %s failed.", move.__name__, run._meta.label, run.pk)
        return Outcome(False, f"nothing was done, for {type(error).__name__} was raised.")


def _log(request: HttpRequest, run: Any, text: str) -> None:
    """A line of the admin log. The run's own `__str__` is not asked: it may raise."""
    LogEntry.objects.create(
        user_id=str(request.user.pk),
        content_type=ContentType.objects.get_for_model(run),
        object_id=str(run.pk),
        object_repr=run.job_id[:200],
        action_flag=CHANGE,
        change_message=text,
    )
