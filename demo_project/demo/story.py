"""The story's steps: what people would do, each once, as soon as it can be done.

A step and the word of it are one transaction, so a demo that is killed and started again goes on
where it was. A question whose worker was lost is asked again; nothing else here minds a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from django.db import transaction

from demo_project.agents.models import AgentRun, ask
from demo_project.harvester.models import DeadLetter, HarvestRun, retry_dead_letters
from demo_project.knowledge.graph import graph_as_json
from demo_project.knowledge.models import CurationRun, request_curation
from demo_project.notifications.announce import announce_failed_agent, announce_pass
from demo_project.notifications.models import Delivery
from demo_project.smtp import Character, character, readers
from runcontract.models import RunContract

from .counts import database_time
from .models import Story

ASKER = "ada@example.org"
TOO_FEW = 1
"""Uses of tools, where an answer takes three."""


def begin(seed: int) -> Story:
    """A new story, from now on."""
    return Story.objects.create(began=database_time(), seed=seed)


def newest() -> Story | None:
    """The story that is told, or was told last."""
    return Story.objects.order_by("pk").last()


def is_over(story: Story) -> bool:
    """Each step was taken; what it asked for may still be under way."""
    return len(story.told) == len(STEPS)


def go_on(story: Story) -> Iterator[str]:
    """Take the steps that can be taken now; what came of each."""
    for name, step in STEPS.items():
        if name in story.told:
            continue
        with transaction.atomic():
            words = step(story)
            told = {**story.told, name: words} if words else story.told
            Story.objects.filter(pk=story.pk).update(told=told, asked=story.asked)
        if not words:
            return
        story.told = told
        yield f"{name}: {words}"


def questions(story: Story) -> list[tuple[str, int]]:
    """What is asked of the graph as it stands, each with its budget; three fail clearly."""
    dice = Random(story.seed)
    names = [node["name"] for node in graph_as_json()["nodes"] if node["version"]]
    one, two, three = (dice.choice(names or ["nothing"]) for _ in range(3))
    return [
        (f"what depends on {one}?", 8),
        (f"which licences does {two} pull in?", 8),
        ("the 3 heaviest chains", 8),
        ("what depends on no-such-distribution?", 8),
        (f"who wrote {one}?", 8),
        (f"which licences does {three} pull in?", TOO_FEW),
    ]


def ask_questions(story: Story) -> str:
    """Once the graph stands: no harvest and no pass under way."""
    if _active(HarvestRun) or _active(CurationRun):
        return ""
    chosen = questions(story)
    runs = [ask(question, asked_by=ASKER, budget=budget).run for question, budget in chosen]
    story.asked = [run.pk for run in runs]
    return f"{len(runs)} questions"


def mail_digest(story: Story) -> str:
    """To one reader for each way in which the mail server behaves."""
    graph = graph_as_json()
    figures = {name: len(found) for name, found in graph.items()}
    figures["conflicts"] = sum(edge["conflict"] for edge in graph["edges"])
    figures["dead letters"] = DeadLetter.objects.open().count()
    event, wanted = f"story-{story.pk}", readers(story.seed)
    mails = announce_pass(event, "The graph stands", figures, readers=wanted)
    return f"{len(mails)} readers"


def notify_of_failures(story: Story) -> str:
    """Once each question has its answer or its cause."""
    runs = _settled(story)
    failed = [(number, run) for number, run in enumerate(runs) if run.state == "failed"]
    for number, run in failed:
        event, cause = f"no-answer-{story.pk}-{number}", (run.last_error or {})["message"]
        announce_failed_agent(event, run.asked_by, run.question, cause)
    return f"{len(failed)} without an answer" if runs else ""


def ask_again(story: Story) -> str:
    """What failed for its budget is asked again with a greater one."""
    short = next((run for run in _settled(story) if run.step_budget == TOO_FEW), None)
    if short is None:
        return ""
    again = ask(short.question, asked_by=short.asked_by, repeats=short).run
    return f"run {again.pk} repeats run {short.pk} with a budget of {again.step_budget}"


def pick_up_dead_letters(story: Story) -> str:
    """Once nobody reads the graph any more."""
    if not _settled(story):
        return ""
    done = retry_dead_letters()
    return f"{done.picked} dead letters picked up, {done.enqueued} harvested again"


def start_a_pass_anew(story: Story) -> str:
    """A pass is asked for and called off; then a new one does its work."""
    if _active(HarvestRun) or _active(CurationRun):
        return ""
    asked = request_curation()
    if not asked:
        return ""
    asked.run.cancel()
    again = asked.run.redo()
    return f"pass {asked.run.pk} was cancelled, pass {again.run.pk} starts anew"


def resend(story: Story) -> str:
    """What was refused for good goes out again, its address put right."""
    if _active(Delivery):
        return ""
    digests = Delivery.objects.filter(event__startswith=f"story-{story.pk}:", failure="permanent")
    refused = digests.order_by("job_id").first()
    if refused is None:
        return "nothing was refused"
    addresses = (each for each in readers(story.seed) if not _is_difficult(each, story.seed))
    was, refused.recipient = refused.recipient, next(addresses)
    refused.save(update_fields=["recipient"])
    refused.redo()
    return f"the digest for {was}, to {refused.recipient}"


STEPS: dict[str, Callable[[Story], str]] = {
    "asked": ask_questions,
    "digest": mail_digest,
    "notices": notify_of_failures,
    "asked again": ask_again,
    "dlq_retry": pick_up_dead_letters,
    "new pass": start_a_pass_anew,
    "resent": resend,
}


def _active(model: type[RunContract]) -> bool:
    return model.objects.filter(finished_at=None).exists()


def _is_difficult(recipient: str, seed: int) -> bool:
    return character(recipient, seed) != Character()


def _settled(story: Story) -> list[AgentRun]:
    """The newest run of each question, all ended; none while one is under way."""
    runs = [_newest(run) for run in AgentRun.objects.filter(pk__in=story.asked).order_by("pk")]
    for run in runs:
        if run.failure == "stale":
            run.redo()
    busy = any(run.finished_at is None or run.failure == "stale" for run in runs)
    return [] if busy else runs


def _newest(run: AgentRun) -> AgentRun:
    while again := run.repeated_by.order_by("pk").last():
        run = again
    return run
