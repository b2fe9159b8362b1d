"""The story again and again, each time with one blow at a moment that the seed picks.

What a blow may cost is time. So each story must end as an undisturbed one does, and hold all that
the demo checks.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from random import Random
from typing import Any

import redis
from django.conf import settings
from django.core.management import call_command
from django.db import connections

from demo_project.agents.models import NewestAnswer
from demo_project.harvester.models import DeadLetter
from demo_project.knowledge.graph import graph_as_json
from demo_project.smtp import accepted

from . import witness
from .counts import consumers
from .places import DemoError
from .processes import Service, children
from .programs import JOURNAL
from .stage import Stage

LOOK = 0.05
"""Seconds between two looks."""

SHORT_WHILE = 0.4
"""Seconds; what a run takes here, more or less."""


@dataclass(frozen=True)
class Ending:
    """How a story ended, in what no blow may change."""

    graph: dict[str, list[dict[str, Any]]]
    delivered: frozenset[str]
    dead_letters: frozenset[tuple[str, str, str]]
    answers: dict[str, str]

    def differences(self, other: Ending) -> list[str]:
        """What is not the same in the other one."""
        names = [field.name for field in fields(self)]
        return [name for name in names if getattr(self, name) != getattr(other, name)]


@dataclass(frozen=True)
class Blow:
    """What is done to the story, and when: so most blows meet work rather than a pause."""

    kind: str
    ended: int
    """After so many runs have ended …"""
    pause: float
    """… and these seconds more."""

    def __str__(self) -> str:
        return f"{self.kind} {self.pause:.2f} s after {self.ended} runs"


@dataclass(frozen=True)
class Told:
    """One story: how it ended, what it took, and what speaks against it."""

    ending: Ending
    seconds: float
    runs: int
    lost: int
    """Runs whose worker was lost."""
    twice: int
    """Mails that the server had accepted before their worker was killed, and took again."""
    against: tuple[str, ...]


def kill_child(stage: Stage, anyhow: bool) -> bool:
    """SIGKILL to a child of the worker that has a run; to one without, if it must be."""
    found = children(_worker(stage).pid or 0)
    busy = [pid for pid in found if _busy(pid)] or (found if anyhow else [])
    return bool(busy) and _killed(busy[0])


def kill_supervisor(stage: Stage, anyhow: bool) -> bool:
    """SIGKILL to the worker itself while a child of it has a run; the children die with it."""
    worker = _worker(stage)
    alive = worker.returncode is None and worker.pid
    return bool(alive and (anyhow or any(map(_busy, children(alive)))) and _killed(alive))


def flush(stage: Stage, anyhow: bool) -> bool:
    """All of Valkey's memory is lost."""
    for url in {lane["URL"] for lane in settings.RQ_QUEUES.values()}:
        with redis.Redis.from_url(url, socket_timeout=5) as server:
            server.flushall()
    return True


KINDS: dict[str, Callable[[Stage, bool], bool]] = {
    "kill -9 of a worker's child": kill_child,
    "kill -9 of the worker": kill_supervisor,
    "FLUSHALL": flush,
}
"""Each says whether it struck; where nothing runs it does not yet, unless it must."""


def blows(count: int, seed: int, runs: int) -> Iterator[Blow]:
    """As many blows, each kind in its turn, all over a story of so many runs."""
    dice, kinds = Random(seed), [*KINDS]
    first = dice.randrange(len(kinds))
    for number in range(count):
        kind = kinds[(first + number) % len(kinds)]
        yield Blow(kind, dice.randrange(runs), dice.uniform(0, SHORT_WHILE))


def tell(stage: Stage, blow: Blow | None = None) -> Told:
    """One story from the beginning, in emptied tables. Raises DemoError when it does not end."""
    servers = len(stage.keeper.kept)
    _empty(stage)
    stage.begin()
    began = time.monotonic()
    _watch(stage, blow)
    seconds, runs = time.monotonic() - began, stage.meter.read()
    against = tuple(
        f"{check.claim}: {fact}" for check in stage.check() for fact in check.against[:3]
    )
    mails = accepted(stage.state / JOURNAL)
    twice = sum(times > 1 for times in mails.values())
    stage.keeper.stop(grace=0, leave=servers)
    return Told(_ending(frozenset(mails)), seconds, runs.ended, runs.lost, twice, against)


def _watch(stage: Stage, blow: Blow | None) -> None:
    """Until all is over, with the blow in between."""
    end = time.monotonic() + stage.options.patience
    while not (over := stage.look()) or blow:
        ended = stage.snapshot.ended if stage.snapshot else 0
        if blow and (over or ended >= blow.ended):
            time.sleep(blow.pause)
            blow = None if KINDS[blow.kind](stage, over) else blow
        if time.monotonic() > end:
            raise DemoError(f"The story does not end; it stands after {[*stage.story.told]}.")
        time.sleep(LOOK)


def _worker(stage: Stage) -> Service:
    (worker,) = (kept.service for kept in stage.keeper.kept if kept.service.name == "worker")
    return worker


def _busy(pid: int) -> bool:
    """Whether a run says that this process has it; its name has the pid in it."""
    running = (model.objects.filter(state="running") for model in consumers())
    return any(runs.filter(worker__contains=f"-{pid}-").exists() for runs in running)


def _killed(pid: int) -> bool:
    os.kill(pid, signal.SIGKILL)
    return True


def _empty(stage: Stage) -> None:
    """No row, no message, no mail; keys count from 1 again, so events have the same ids."""
    call_command("flush", interactive=False, verbosity=0)
    witness.forget()
    flush(stage, anyhow=True)
    (stage.state / JOURNAL).unlink(missing_ok=True)
    connections.close_all()


def _ending(delivered: frozenset[str]) -> Ending:
    letters = DeadLetter.objects.open().values_list("source__name", "failure", "cause")
    answers = dict(NewestAnswer.objects.values_list("question", "text"))
    return Ending(graph_as_json(), delivered, frozenset(letters), answers)
