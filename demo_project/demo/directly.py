"""The dependency graph read from `importlib.metadata`, by another way than knowledge goes.

No origin, no harvest, no database: what the demo's graph is measured by.
"""

from __future__ import annotations

import importlib.metadata
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name


def edges_among(names: Collection[str]) -> set[tuple[str, str]]:
    """What each of these distributions requires here and now.

    Extras are spread until nothing changes any more, and only by these distributions.
    """
    lines = _requirements(names)
    extras, found, before = defaultdict[str, set[str]](set), set[tuple[str, str]](), -1
    while before != (before := len(found) + sum(map(len, extras.values()))):
        for source, requirements in lines.items():
            for each in requirements:
                if _applies(each, extras[source]):
                    target = str(canonicalize_name(each.name))
                    extras[target] |= {str(canonicalize_name(extra)) for extra in each.extras}
                    found |= {(source, target)} if target != source else set()
    return found


def _requirements(names: Collection[str]) -> dict[str, list[Requirement]]:
    """Of a distribution that is there twice, the one that an import finds."""
    lines: dict[str, list[Requirement]] = {}
    for each in importlib.metadata.distributions():
        name = str(canonicalize_name(each.metadata["Name"] or ""))
        if name in names and name not in lines:
            lines[name] = []
            for line in each.requires or []:
                with suppress(InvalidRequirement):  # nobody can say what it requires
                    lines[name].append(Requirement(line))
    return lines


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras})
