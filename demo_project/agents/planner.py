"""What decides the next step: a small deterministic planner, where a language model could sit."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runcontract import PermanentError


@dataclass(frozen=True)
class Call:
    """Use this tool, then ask me again."""

    tool: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Answer:
    """That is it: a sentence, and what it rests on as JSON."""

    text: str
    facts: Any


class Model(Protocol):
    """The seam: what says how to go on, by the question and the steps so far, oldest first.

    A step is `{"tool": …, "arguments": […], "result": …}`.
    """

    async def next_move(self, question: str, steps: Sequence[dict[str, Any]]) -> Call | Answer: ...


Plan = Generator[Call, Any, Answer]


class Planner:
    """Knows three kinds of questions. A plan is a generator: it yields calls, it gets results."""

    async def next_move(self, question: str, steps: Sequence[dict[str, Any]]) -> Call | Answer:
        """Go through the plan again as far as there are results."""
        plan = plan_for(question)
        try:
            move = next(plan)
            for step in steps:
                move = plan.send(step["result"])
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        return move


def plan_for(question: str) -> Plan:
    """The plan that fits. Raises PermanentError if none does."""
    for pattern, plan in PLANS.items():
        if found := re.fullmatch(pattern, question, re.IGNORECASE):
            return plan(*found.groups())
    raise PermanentError(f"The planner does not understand {question!r}.")


def what_depends_on(said: str) -> Plan:
    name = (yield Call("find", (said,)))["name"]
    steps = yield Call("dependents_of", (name,))
    direct = [each for each, distance in steps.items() if distance == 1]
    text = f"{len(steps)} depend on {name}, {len(direct)} of them directly{tell(direct)}."
    return Answer(text, {"direct": direct, "all": sorted(steps)})


def which_licences(said: str) -> Plan:
    name = (yield Call("find", (said,)))["name"]
    below = yield Call("dependencies_of", (name,))
    licences = yield Call("licences_under", (name,))
    text = f"{name} and the {len(below)} that it pulls in come under {len(licences)}"
    return Answer(f"{text}{tell(licences)}.", licences)


def heaviest_chains(number: str | None) -> Plan:
    chains = yield Call("heaviest_chains", (int(number or 3),))
    told = []
    for chain in chains:
        weight = (yield Call("find", (chain[0],)))["pulls_in"]
        told.append(f"{' → '.join(chain)} (pulls in {weight})")
    return Answer(f"The heaviest: {'; '.join(told) or 'none'}.", chains)


def tell(names: Collection[str], most: int = 8) -> str:
    """`: a, b and 3 more`; nothing where there are none."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f": {', '.join(list(names)[:most])}{more}" if names else ""


PLANS: dict[str, Callable[..., Plan]] = {
    r"what depends on (\S+?)\??": what_depends_on,
    r"(?:which|what) licen[cs]es does (\S+) pull in\??": which_licences,
    r"(?:what are )?the (?:(\d+) )?heaviest chains\??": heaviest_chains,
}
