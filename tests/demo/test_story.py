"""The story's steps: each once, each in its time, whoever is killed meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db.models.functions import Now

from demo_project.agents.models import AgentRun
from demo_project.demo import story
from demo_project.demo.models import Story
from demo_project.demo.story import STEPS, begin, go_on, is_over, newest
from demo_project.harvester.models import DeadLetter, HarvestRun, Source
from demo_project.knowledge.models import CurationRun
from demo_project.notifications.models import Delivery
from demo_project.smtp import Character, character, readers
from runcontract.models import RunContract

from .graphs import curate, harvest

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_server")]

BUDGET = "The budget of 1 steps is spent: find."


def settle(model: type[RunContract], state: str, failure: str = "", **where: Any) -> None:
    """End the active runs."""
    error = {"type": "E", "message": BUDGET} if failure else None
    model.objects.filter(finished_at=None, **where).update(
        state=state, failure=failure, last_error=error, finished_at=Now(), held_until=Now()
    )


@pytest.fixture
def told() -> Story:
    """It stands at its beginning: a graph of two, and a dead letter."""
    harvest("a", "b")
    harvest("b")
    curate()
    source = Source.objects.create(name="gone", version="1")
    DeadLetter.objects.create(source=source, job_id="g", failure="permanent", cause="?", at=Now())
    return begin(seed=1)


@pytest.fixture
def asked(told: Story) -> Story:
    assert [*go_on(told)] == ["asked: 6 questions", "digest: 9 readers"]
    return told


@pytest.mark.parametrize("model", [HarvestRun, CurationRun])
def test_nothing_is_asked_before_the_graph_stands(told: Story, model: Any) -> None:
    own = {"source": Source.objects.get(name="a"), "generation": 1}
    model.objects.enqueue(**(own if model is HarvestRun else {}))
    assert [*go_on(told)] == []
    settle(model, "succeeded")
    assert len([*go_on(told)]) == 2


def test_step_is_taken_once_also_by_the_next_demo(asked: Story) -> None:
    again = newest()
    assert again == asked
    assert again
    assert [*go_on(again)] == []
    assert AgentRun.objects.count() == 6
    assert Delivery.objects.count() == len(readers(1)) == 9


def test_step_that_fails_has_not_happened(told: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Story) -> str:
        story.ask_questions(told)
        raise ZeroDivisionError

    monkeypatch.setitem(STEPS, "asked", fails)
    with pytest.raises(ZeroDivisionError):
        next(go_on(told))
    assert not AgentRun.objects.exists()
    assert told.told == {}


def test_question_whose_worker_was_lost_is_asked_again_and_nobody_is_told(asked: Story) -> None:
    settle(AgentRun, "failed", "stale", pk=asked.asked[0])
    settle(AgentRun, "succeeded")
    assert [*go_on(asked)] == []
    (again,) = AgentRun.objects.filter(finished_at=None)
    assert again.repeats_id == asked.asked[0]
    settle(AgentRun, "succeeded")
    assert next(go_on(asked)) == "notices: 0 without an answer"


def test_failures_are_announced_and_what_lacked_budget_is_asked_again(asked: Story) -> None:
    settle(AgentRun, "failed", "permanent", step_budget=1)
    settle(AgentRun, "succeeded")
    words = [*go_on(asked)]
    short = AgentRun.objects.get(step_budget=1)
    again = AgentRun.objects.get(repeats=short)
    assert words == [
        "notices: 1 without an answer",
        f"asked again: run {again.pk} repeats run {short.pk} with a budget of 8",
    ]
    assert BUDGET in Delivery.objects.get(kind="failed agent").body


def test_told_to_its_end(asked: Story) -> None:
    settle(AgentRun, "failed", "permanent", step_budget=1)
    settle(AgentRun, "succeeded")
    refused = next(r for r in readers(1) if "550" in character(r, 1).then)
    words = []
    steps: list[Callable[[], None]] = [
        lambda: settle(AgentRun, "succeeded"),
        lambda: settle(HarvestRun, "failed", "permanent"),
        lambda: settle(Delivery, "failed", "permanent", recipient=refused),
    ]
    for step in steps:
        words += go_on(asked)
        step()
    settle(Delivery, "succeeded")
    words += go_on(asked)
    cancelled, anew = CurationRun.objects.order_by("pk")
    assert words[2:4] == [
        "dlq_retry: 1 dead letters picked up, 1 harvested again",
        f"new pass: pass {cancelled.pk} was cancelled, pass {anew.pk} starts anew",
    ]
    assert (cancelled.failure, anew.state) == ("cancelled", "queued")
    again = Delivery.objects.get(finished_at=None)
    assert character(again.recipient, 1) == Character()
    assert words[4] == f"resent: the digest for {refused}, to {again.recipient}"
    assert is_over(asked)
    assert [*go_on(asked)] == []
