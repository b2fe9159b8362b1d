"""From harvested metadata to rows: decided by it, and by the environment that markers ask about."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from demo_project.harvester.client import Metadata

from .graph import Edge, Entity


def parse(told: Metadata) -> tuple[Entity, list[Requirement]]:
    """A distribution and what it requires; what nobody can read is kept as text."""
    entity = Entity(name=canonicalize_name(told.name), version=told.version, licence=told.license)
    requirements = []
    for line in told.requires_dist:
        try:
            requirements.append(Requirement(line))
        except (InvalidRequirement, TypeError):
            entity.unreadable.append(str(line))
    return entity, requirements


def link(required: Mapping[str, Collection[Requirement]]) -> list[Edge]:
    """What is required here and now; by an extra only where somebody asks for that extra."""
    edges: dict[tuple[str, str], Edge] = {}
    asked = deque((name, "") for name in sorted(required))  # first without any extra
    seen = set(asked)
    while asked:
        source, extra = asked.popleft()
        for each in required.get(source, ()):
            if each.marker and not each.marker.evaluate({"extra": extra}):
                continue
            target = str(canonicalize_name(each.name))
            if target != source:  # an extra may ask for other extras of its own distribution
                new = Edge(source_id=source, target_id=target, extra=extra)
                edge = edges.setdefault((source, target), new)
                edge.specifier = str(each.specifier & SpecifierSet(edge.specifier))
            wanted = {(target, str(canonicalize_name(name))) for name in each.extras} - seen
            asked.extend(sorted(wanted))
            seen |= wanted
    return [edges[ends] for ends in sorted(edges)]


def rank(harvested: Collection[Entity], edges: Collection[Edge]) -> list[Entity]:
    """All entities by name, with what hangs on each; orphans and conflicts are marked."""
    entities = {edge.target_id: Entity(name=edge.target_id) for edge in edges}
    entities |= {entity.name: entity for entity in harvested}
    down, up = ways((edge.source_id, edge.target_id) for edge in edges)
    for edge in edges:
        edge.conflict = not _satisfies(entities[edge.target_id].version, edge.specifier)
    for name, entity in entities.items():
        entity.orphan = name not in up
        entity.dependents, entity.pulls_in = len(reach(name, up)), len(reach(name, down))
    return [entities[name] for name in sorted(entities)]


def _satisfies(version: str, specifier: str) -> bool:
    """Of a version that is not there, or that nobody can read, nothing is said."""
    try:
        return not version or SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True


Ways = dict[str, set[str]]


def ways(edges: Iterable[tuple[str, str]]) -> tuple[Ways, Ways]:
    """Where one gets from each node: down to what it requires, up to what requires it."""
    down, up = Ways(), Ways()
    for source, target in edges:
        down.setdefault(source, set()).add(target)
        up.setdefault(target, set()).add(source)
    return down, up


def reach(start: str, neighbours: Ways) -> dict[str, int]:
    """All that can be reached and in how many steps, nearest first, without the start itself."""
    steps, todo = {start: 0}, deque([start])
    while todo:
        here = todo.popleft()
        for name in sorted(neighbours.get(here, ())):
            if name not in steps:
                steps[name] = steps[here] + 1
                todo.append(name)
    del steps[start]
    return steps
