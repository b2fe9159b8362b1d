"""Answers are right, budgets and failures clear, and a run can be stopped, fenced and repeated."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.db import OperationalError
from django.test import Client

from demo_project.agents.models import AgentRun, NewestAnswer, ask, publish
from demo_project.agents.planner import Answer
from demo_project.agents.tools import TOOLS
from runcontract import (
    InvalidRun,
    LeaseLost,
    PermanentError,
    RunCancelled,
    RunContext,
    TransientError,
)
from runcontract.lifecycle import transitions
from runcontract.lifecycle.table import table_of
from tests.support.lab import ended, in_state
from tests.support.wait import eventually

from .graphs import context, curate, harvest

pytestmark = pytest.mark.django_db


@pytest.fixture
def small() -> None:
    harvest("app", "web", "db")
    harvest("web", "http", licence="BSD-3-Clause")
    harvest("db", licence="")
    harvest("http")
    curate()


def claimed(run: AgentRun, worker: str = "me") -> AgentRun:
    taken = transitions.claim(table_of(AgentRun), run.pk, run.lease, worker)
    assert isinstance(taken, AgentRun)
    return taken


def perform(run: AgentRun, **more: Any) -> RunContext:
    ctx = context(run, run.lease, **more)
    async_to_sync(run.perform)(ctx)
    return ctx


def answered(question: str, **more: Any) -> AgentRun:
    """The run of this question, performed here."""
    run = claimed(ask(question, **more).run)
    perform(run)
    run.refresh_from_db()
    return run


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("question", "tools", "text"),
    [
        (
            "what depends on HTTP?",
            ["find", "dependents_of"],
            "2 depend on http, 1 of them directly: web.",
        ),
        (
            "Which licences does app pull in?",
            ["find", "dependencies_of", "licences_under"],
            "app and the 3 that it pulls in come under 3: BSD-3-Clause, MIT, unknown.",
        ),
        (
            "the 2 heaviest chains",
            ["heaviest_chains", "find"],
            "The heaviest: app → web → http (pulls in 3).",
        ),
        (
            "  What depends \n on app",
            ["find", "dependents_of"],
            "0 depend on app, 0 of them directly.",
        ),
    ],
)
def test_answers_are_right_and_say_how_they_came(
    question: str, tools: list[str], text: str
) -> None:
    run = answered(question, asked_by="ada")
    assert run.answer is not None
    assert run.answer["text"] == text
    assert [step["tool"] for step in run.trace] == tools
    newest = NewestAnswer.objects.get(question=" ".join(question.split()))
    assert (newest.text, newest.run, newest.lease) == (text, run, 1)
    assert (run.lane, run.asked_by) == ("interactive", "ada")


@pytest.mark.usefixtures("small")
def test_steps_and_progress_can_be_watched() -> None:
    run = claimed(ask("what depends on http?", budget=5).run)
    stats = perform(run).stats
    assert [step["name"] for step in stats["steps"]] == ["find", "dependents_of"]
    assert stats["progress"] == {"done": 2, "total": 5}


def test_long_lists_are_cut_in_the_sentence_only() -> None:
    harvest("base")
    for number in range(10):
        harvest(f"d{number}", "base")
    curate()
    answer = answered("what depends on base?").answer
    assert answer is not None
    assert answer["text"].endswith("d6, d7 and 2 more.")
    assert len(answer["facts"]["all"]) == 10


def test_question_that_no_plan_fits_says_so() -> None:
    with pytest.raises(PermanentError, match="does not understand 'why'"):
        answered("why")


@pytest.mark.usefixtures("small")
def test_spent_budget_names_the_steps_that_spent_it() -> None:
    with pytest.raises(PermanentError, match="The budget of 1 steps is spent: find"):
        answered("what depends on http?", budget=1)
    assert len(AgentRun.objects.get().trace) == 1


@pytest.mark.usefixtures("small")
def test_failing_tool_is_named_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PermanentError, match="The tool find failed: there is no 'htp', but http"):
        answered("what depends on htp?")
    monkeypatch.delitem(TOOLS, "find")
    with pytest.raises(PermanentError, match="There is no tool 'find'"):
        answered("what depends on app?")


def test_tool_that_loses_the_database_is_worth_another_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*_: Any) -> None:
        raise OperationalError("away")

    monkeypatch.setitem(TOOLS, "find", away)
    with pytest.raises(TransientError, match="The tool find lost the database: away"):
        answered("what depends on app?")


@pytest.mark.usefixtures("small")
def test_cancel_is_seen_between_two_steps() -> None:
    run = claimed(ask("what depends on http?").run)
    orders = iter([None, RunCancelled])

    def interrupt() -> None:
        if order := next(orders):
            raise order

    with pytest.raises(RunCancelled):
        perform(run, interrupt=interrupt)
    run.refresh_from_db()
    assert (len(run.trace), run.answer) == (1, None)


@pytest.mark.usefixtures("small")
def test_late_worker_of_an_older_lease_changes_nothing() -> None:
    late = claimed(ask("what depends on http?").run)
    assert transitions.give_back(table_of(AgentRun), late.pk, late.lease)
    queued = AgentRun.objects.get()
    now = claimed(queued, "another")
    perform(now)
    with pytest.raises(LeaseLost):
        perform(late)
    kept = NewestAnswer.objects.get()
    assert kept.lease == now.lease > late.lease
    assert not publish(late, late.lease, Answer("wrong", {}))
    assert publish(now, now.lease, Answer("again", {}))
    kept.refresh_from_db()
    assert kept.text == "again"


@pytest.mark.usefixtures("small")
def test_older_run_does_not_overwrite_the_answer_of_a_newer_one() -> None:
    older, newer = (claimed(ask("what depends on http?").run) for _ in range(2))
    assert publish(newer, 1, Answer("new", {}))
    assert not publish(older, 7, Answer("old", {}))
    assert NewestAnswer.objects.get().text == "new"
    perform(older)
    assert NewestAnswer.objects.get().text == "new"


def test_again_is_a_new_run_that_names_the_one_it_repeats() -> None:
    run = ask("what depends on http?", asked_by="ada", budget=3).run
    run.cancel()
    run.refresh_from_db()
    again, double_click = run.redo(), run.redo()
    assert again.created
    assert (double_click.reason, double_click.run.pk) == ("duplicate", again.run.pk)
    new = AgentRun.objects.get(repeats=run)
    assert new.pk == again.run.pk
    assert new.job_id != run.job_id
    assert (new.question, new.asked_by, new.step_budget) == (run.question, "ada", 3)
    assert AgentRun.objects.get(pk=run.pk).state == "failed"


def test_run_that_did_not_fail_is_not_repeated() -> None:
    run = ask("what depends on http?").run
    answer = run.redo()
    assert (bool(answer), answer.reason) == (False, "not failed")
    assert AgentRun.objects.count() == 1


def test_question_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidRun, match="question has 501 characters"):
        ask("x" * 501)


def test_question_can_be_asked_in_the_admin(client: Client) -> None:
    user = get_user_model().objects.create_superuser("root")
    client.force_login(user)
    form = {"question": "what depends on x?", "asked_by": "ada", "step_budget": "4"}
    answer = client.post("/admin/agents/agentrun/add/", form)
    assert answer.status_code == 302, answer.content
    run = AgentRun.objects.get()
    assert (run.question, run.asked_by, run.step_budget) == ("what depends on x?", "ada", 4)
    assert (run.lane, run.state) == ("interactive", "queued")
    for page in ("agents/agentrun/", f"agents/agentrun/{run.pk}/change/", "agents/newestanswer/"):
        assert client.get(f"/admin/{page}").status_code == 200


@pytest.mark.django_db(transaction=True)
class TestByARealWorker:
    """The same from the queue to the end."""

    @pytest.fixture(autouse=True)
    def _graph(self, redis_server: Any, transactional_db: None) -> None:
        harvest("app", "web")
        curate()

    def test_question_is_answered_though_harvests_wait(self, start_worker: Any) -> None:
        run = ask("what depends on web?").run
        start_worker("interactive", "bulk")
        assert ended(run).state == "succeeded", run.last_error
        assert run.answer["text"] == "1 depend on web, 1 of them directly: app."

    @pytest.mark.parametrize("thinker", ["Restless", "Ponderer"])
    def test_running_agent_is_cancelled(self, start_worker: Any, thinker: str) -> None:
        env = {"AGENT_MODEL": f"tests.demo.thinkers.{thinker}"}
        worker = start_worker("interactive", env=env)
        run = ask("anything", budget=10_000).run
        in_state(run, "running")
        if thinker == "Restless":
            eventually(lambda: AgentRun.objects.get(pk=run.pk).trace)
        assert run.cancel() == "asked"
        assert ended(run, 10).failure == "cancelled"
        assert not NewestAnswer.objects.exists()
        again = run.redo().run
        assert again.cancel() in ("cancelled", "asked")
        worker.stop()

    def test_failures_stay_on_the_row_with_their_cause(self, start_worker: Any) -> None:
        env = {"AGENT_MODEL": "tests.demo.thinkers.Fantasist"}
        worker = start_worker("interactive", env=env)
        run = ended(ask("anything").run)
        assert (run.state, run.failure) == ("failed", "permanent")
        assert run.last_error["message"] == "There is no tool 'ask_an_oracle'."
        worker.stop()
