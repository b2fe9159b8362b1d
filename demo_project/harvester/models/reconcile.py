"""What should be harvested and is not: found and enqueued, by hand or by a nightly run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.db.models.functions import Now

from runcontract import RunContext
from runcontract.models import RunContract

from ..client import fetch_index
from ..signals import catalogue_changed
from .catalogue import DeadLetter, Harvest, Source
from .harvest import HarvestRun


@dataclass(frozen=True)
class Reconciled:
    """What one look found; each listed source is in exactly one of the last four counts."""

    listed: int
    enqueued: int
    under_way: int
    dead: int
    harvested: int

    def __str__(self) -> str:
        return (
            f"reconcile: {self.listed} listed, {self.enqueued} enqueued, "
            f"{self.under_way} under way, {self.dead} dead letters, {self.harvested} harvested"
        )


@dataclass(frozen=True)
class Retried:
    """What came of picking up dead letters."""

    picked: int
    enqueued: int
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        nothing = f", no open dead letter: {', '.join(self.unknown)}" if self.unknown else ""
        return f"dlq_retry: {self.picked} picked up, {self.enqueued} enqueued{nothing}"


class ReconcileRun(RunContract):
    """One look at what should be harvested and is not. Doing it again is the next look."""

    class Meta(RunContract.Meta):
        db_table = "reconcile_runs"

    def perform(self, ctx: RunContext) -> None:
        """The same as `manage.py reconcile`."""
        with ctx.step("reconcile") as step:
            done = reconcile()
            step.count(listed=done.listed, enqueued=done.enqueued)


def reconcile(*, anew: bool = False) -> Reconciled:
    """Enqueue a run for each listed source that lacks one; a second call finds nothing to do.

    `anew` asks again for all that is harvested or dead, as if it had not been yet.
    """
    listing = fetch_index()
    with transaction.atomic():
        changed = _take_over(listing)
        if anew:
            _ask_again(Source.objects.filter(_harvested() | Exists(_open_letters()), listed=True))
        _ask_again(_missing().filter(_succeeded()))  # whose harvest was removed since
        enqueued = _enqueue(_missing())
        if changed:
            catalogue_changed.send(Source)
        return _count(enqueued)


@transaction.atomic
def retry_dead_letters(names: Collection[str] = ()) -> Retried:
    """Pick up the open dead letters, or those of the named sources, and harvest again."""
    wanted = Source.objects.filter(Exists(_open_letters()), listed=True)
    if names:
        wanted = wanted.filter(name__in=names)
    held = list(wanted.select_for_update(no_key=True).order_by("name"))
    letters = DeadLetter.objects.open().filter(source__in=held)  # read under the locks
    sources = Source.objects.filter(pk__in=letters.values_list("source_id", flat=True))
    picked = sorted(sources.values_list("name", flat=True))
    again = Source.objects.filter(name__in=picked)
    _ask_again(again)
    return Retried(len(picked), _enqueue(again), tuple(sorted(set(names) - set(picked))))


def _take_over(listing: Mapping[str, str]) -> bool:
    """The origin's list becomes ours; a new version is a harvest to be made.

    True if a source that was known before came or went.
    """
    known = {each.name: each for each in Source.objects.select_for_update(no_key=True)}
    new = sorted(listing.keys() - known.keys())
    Source.objects.bulk_create(
        [Source(name=name, version=listing[name]) for name in new], ignore_conflicts=True
    )
    gone = Source.objects.filter(listed=True).exclude(name__in=listing).update(listed=False)
    back = Source.objects.filter(listed=False, name__in=listing).update(listed=True)
    for name in listing.keys() & known.keys():
        if known[name].version != listing[name]:
            changed = Source.objects.filter(name=name)
            changed.update(version=listing[name])
            _ask_again(changed)
    return bool(gone or back)


def _ask_again(sources: QuerySet[Source]) -> None:
    """A new generation for these sources; their open dead letters are history."""
    pks = list(sources.values_list("pk", flat=True))
    Source.objects.filter(pk__in=pks).update(generation=F("generation") + 1)
    DeadLetter.objects.filter(source__in=pks, picked_at=None).update(picked_at=Now())


def _missing() -> QuerySet[Source]:
    """Listed, not harvested in its generation, no open dead letter, nothing under way."""
    active = HarvestRun.objects.filter(source=OuterRef("pk"), finished_at=None)
    return Source.objects.filter(
        ~_harvested(), ~Exists(active), ~Exists(_open_letters()), listed=True
    )


def _harvested() -> Exists:
    """There is a harvest of the source's generation."""
    return Exists(
        Harvest.objects.filter(source=OuterRef("pk"), generation__gte=OuterRef("generation"))
    )


def _succeeded() -> Exists:
    """A run of the source's generation has succeeded."""
    runs = HarvestRun.objects.filter(source=OuterRef("pk"), generation=OuterRef("generation"))
    return Exists(runs.filter(state="succeeded"))


def _open_letters() -> QuerySet[DeadLetter]:
    """The open dead letter of the source outside."""
    return DeadLetter.objects.filter(source=OuterRef("pk"), picked_at=None)


def _enqueue(sources: Iterable[Source]) -> int:
    """One run for each; how many are new. The job_id makes a second call harmless."""
    answers = HarvestRun.objects.bulk_enqueue(
        [
            {
                "job_id": f"harvest:{source.name}:{source.generation}",
                "lock_key": f"source:{source.name}",
                "source": source,
                "generation": source.generation,
            }
            for source in sources
        ]
    )
    return sum(answer.created for answer in answers)


def _count(enqueued: int) -> Reconciled:
    listed = Source.objects.filter(listed=True)
    dead = listed.filter(Exists(_open_letters())).count()
    harvested = listed.filter(_harvested(), ~Exists(_open_letters())).count()
    total = listed.count()
    under_way = total - dead - harvested - enqueued
    return Reconciled(total, enqueued, under_way, dead, harvested)
