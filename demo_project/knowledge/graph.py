"""What others may ask of the graph; each answer is read in one statement, so from one pass."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef
from django.db.models.functions import JSONObject
from packaging.utils import canonicalize_name

from .models import Edge, Entity
from .models.curate import reach, ways


class _Graph:
    """All of it, as one pass left it."""

    def __init__(self) -> None:
        told = graph_as_json()
        self.nodes = {node["name"]: node for node in told["nodes"]}
        self.down, self.up = ways((edge["source"], edge["target"]) for edge in told["edges"])

    def name(self, said: str) -> str:
        """How the graph calls what somebody named. Raises LookupError, with what is near."""
        name = str(canonicalize_name(said))
        if name not in self.nodes:
            near = " or ".join(get_close_matches(name, self.nodes, n=2))
            raise LookupError(f"there is no {name!r}" + (f", but {near}" if near else ""))
        return name


def find(name: str) -> dict[str, Any]:
    """What is known of one distribution. Raises LookupError."""
    graph = _Graph()
    return graph.nodes[graph.name(name)]


def dependents_of(name: str) -> dict[str, int]:
    """What requires it: 1 directly, 2 by way of another … Raises LookupError."""
    graph = _Graph()
    return reach(graph.name(name), graph.up)


def dependencies_of(name: str) -> dict[str, int]:
    """What it pulls in: 1 directly, 2 by way of another … Raises LookupError."""
    graph = _Graph()
    return reach(graph.name(name), graph.down)


def licences_under(name: str) -> dict[str, list[str]]:
    """The licences of it and of what it pulls in, each with the names. Raises LookupError."""
    graph, licences = _Graph(), dict[str, list[str]]()
    start = graph.name(name)
    for each in sorted([start, *reach(start, graph.down)]):
        licences.setdefault(graph.nodes[each]["licence"] or "unknown", []).append(each)
    return dict(sorted(licences.items()))


def heaviest_chains(count: int = 5) -> list[list[str]]:
    """From what nothing requires down, each time to what pulls in the most; heaviest first."""
    graph = _Graph()

    def weight(name: str) -> tuple[int, str]:
        return -graph.nodes[name]["pulls_in"], name

    starts = sorted(graph.down.keys() - graph.up.keys(), key=weight)
    chains = [[start] for start in starts[:count]]
    for chain in chains:
        while below := graph.down.get(chain[-1], set()) - set(chain):
            chain.append(min(below, key=weight))
    return chains


def graph_as_json() -> dict[str, list[dict[str, Any]]]:
    """Nodes by name, and edges with the names of their ends."""
    columns = ("source_id", "target_id", "specifier", "extra", "conflict")
    told = JSONObject(**{name.removesuffix("_id"): name for name in columns})
    edges = Edge.objects.filter(source=OuterRef("pk")).order_by("target").values_list(told)
    rows = Entity.objects.annotate(edges=ArraySubquery(edges)).order_by("name")
    nodes: list[dict[str, Any]] = [dict(row) for row in rows.values()]
    return {"nodes": nodes, "edges": [edge for node in nodes for edge in node.pop("edges")]}
