"""The run that answers a question, and the newest answer to each."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.module_loading import import_string

from runcontract import LeaseLost, PermanentError, RunContext, RunPolicy
from runcontract.models import Enqueued, RunContract

from .planner import Answer, Call, Model
from .tools import use


class AgentRun(RunContract):
    """One question. Again means: somebody asks again, a new run that names this one."""

    question = models.CharField(max_length=500)
    asked_by = models.CharField(max_length=150, blank=True)
    step_budget = models.PositiveSmallIntegerField(default=8, help_text="Uses of tools.")
    trace = models.JSONField(default=list, editable=False)
    answer = models.JSONField(null=True, editable=False)
    repeats = models.ForeignKey(
        "self", null=True, on_delete=models.SET_NULL, related_name="repeated_by", editable=False
    )

    policy = RunPolicy(lane="interactive", timeout=timedelta(minutes=1))

    class Meta(RunContract.Meta):
        db_table = "agent_runs"

    async def perform(self, ctx: RunContext) -> None:
        """Let the model choose steps until it has an answer, or the budget is spent."""
        model: Model = import_string(settings.AGENT_MODEL)()
        trace: list[dict[str, Any]] = []
        while isinstance(move := await model.next_move(self.question, trace), Call):
            ctx.check()
            if len(trace) >= self.step_budget:
                used = ", ".join(step["tool"] for step in trace)
                raise PermanentError(f"The budget of {self.step_budget} steps is spent: {used}.")
            with ctx.step(move.tool):
                result = await use(move)
            trace.append({"tool": move.tool, "arguments": move.arguments, "result": result})
            ctx.progress(len(trace), self.step_budget)
            await self.keep(ctx, trace=trace)
        await self.keep(ctx, answer=asdict(move))
        await sync_to_async(publish)(self, ctx.lease, move)

    async def keep(self, ctx: RunContext, **own: Any) -> None:
        """Write own columns, under the lease: a worker that comes late changes nothing."""
        held = AgentRun.objects.filter(pk=self.pk, state="running", lease=ctx.lease)
        if not await held.aupdate(**own):
            raise LeaseLost(self._meta.label_lower, self.pk, ctx.lease)

    def redo(self) -> Enqueued:
        """Somebody asks again; a double click finds the run that the first one made."""
        if not AgentRun.objects.filter(pk=self.pk, state="failed").exists():
            return Enqueued(self, False, "not failed")
        return ask(self.question, asked_by=self.asked_by, budget=self.step_budget, repeats=self)


class NewestAnswer(models.Model):
    """The newest answer to a question, written by many runs; its fence is the run and its lease."""

    question = models.CharField(max_length=500, unique=True)
    text = models.TextField()
    facts = models.JSONField()
    run = models.ForeignKey(AgentRun, on_delete=models.PROTECT, related_name="+")
    lease = models.BigIntegerField()
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.question} {self.text}"


def publish(run: AgentRun, lease: int, answer: Answer) -> bool:
    """Write a run's answer where no newer run and no later claim of this one has; says if so."""
    wrote = {**asdict(answer), "run": run, "lease": lease, "at": Now()}
    NewestAnswer.objects.get_or_create(question=run.question, defaults=wrote)
    older = Q(run__lt=run.pk) | Q(run=run.pk, lease__lte=lease)
    return bool(NewestAnswer.objects.filter(older, question=run.question).update(**wrote))


def ask(
    question: str, *, asked_by: str = "", budget: int = 8, repeats: AgentRun | None = None
) -> Enqueued:
    """Ask a question, perhaps once more. Raises InvalidRun, a ValueError, for one too long."""
    return AgentRun.objects.enqueue(
        job_id=f"repeat:{repeats.pk}" if repeats else None,
        question=" ".join(question.split()),
        asked_by=asked_by,
        step_budget=budget,
        repeats=repeats,
    )
