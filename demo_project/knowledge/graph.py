"""What others may ask of the graph; each answer is read in one statement, so from one pass."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, NamedTuple

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef
from django.db.models.functions import JSONObject
from packaging.utils import canonicalize_name

from .models import Edge, Entity
from .models.curate import Ways, reach, ways


class Graph(NamedTuple):
    """All of it, as one pass left it."""

    nodes: dict[str, dict[str, Any]]
    down: Ways
    up: Ways

    def name(self, said: str) -> str:
        """How the graph calls what somebody named. Raises LookupError, with what is near."""
        name = str(canonicalize_name(said))
        if name not in self.nodes:
            near = " or ".join(get_close_matches(name, self.nodes, n=2))
            raise LookupError(f"there is no {name!r}" + (f"; is it {near}?" if near else ""))
        return name


def find(name: str) -> dict[str, Any]:
    """What is known of one distribution. Raises LookupError."""
    graph = _read()
    return graph.nodes[graph.name(name)]


def dependents_of(name: str) -> dict[str, int]:
    """What requires it: 1 directly, 2 by way of another … Raises LookupError."""
    graph = _read()
    return reach(graph.name(name), graph.up)


def dependencies_of(name: str) -> dict[str, int]:
    """What it pulls in: 1 directly, 2 by way of another … Raises LookupError."""
    graph = _read()
    return reach(graph.name(name), graph.down)


def licences_under(name: str) -> dict[str, list[str]]:
    """The licences of it and of what it pulls in, each with the names. Raises LookupError."""
    graph, licences = _read(), dict[str, list[str]]()
    start = graph.name(name)
    for each in sorted([start, *reach(start, graph.down)]):
        licences.setdefault(graph.nodes[each]["licence"] or "unknown", []).append(each)
    return dict(sorted(licences.items()))


def heaviest_chains(count: int = 5) -> list[list[str]]:
    """Ways down, each time to what itself pulls in the most; heaviest first, none in another."""
    graph, chains, met = _read(), list[list[str]](), set[str]()

    def weight(name: str) -> tuple[int, str]:
        return -graph.nodes[name]["pulls_in"], name

    for start in sorted(graph.down, key=weight):
        if start not in met and len(chains) < count:
            chains.append([start])
            while below := graph.down.get(chains[-1][-1], set()) - set(chains[-1]):
                chains[-1].append(min(below, key=weight))
            met.update(chains[-1])
    return chains


def graph_as_json() -> dict[str, list[dict[str, Any]]]:
    """Nodes by name, and edges with the names of their ends."""
    columns = ("source_id", "target_id", "specifier", "extra", "conflict")
    told = JSONObject(**{name.removesuffix("_id"): name for name in columns})
    edges = Edge.objects.filter(source=OuterRef("pk")).order_by("target").values_list(told)
    rows = Entity.objects.annotate(edges=ArraySubquery(edges)).order_by("name")
    nodes: list[dict[str, Any]] = [dict(row) for row in rows.values()]
    return {"nodes": nodes, "edges": [edge for node in nodes for edge in node.pop("edges")]}


def _read() -> Graph:
    told = graph_as_json()
    nodes = {node["name"]: node for node in told["nodes"]}
    return Graph(nodes, *ways((edge["source"], edge["target"]) for edge in told["edges"]))
