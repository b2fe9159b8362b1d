"""The graph is right, whatever is harvested and however often it is curated."""

import importlib.metadata
from collections import defaultdict
from typing import Any

import pytest
from django.db import transaction
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from demo_project.harvester.client import Metadata
from demo_project.harvester.models import Source, harvested
from demo_project.knowledge.graph import (
    dependencies_of,
    dependents_of,
    find,
    graph_as_json,
    heaviest_chains,
    licences_under,
)
from demo_project.knowledge.models import CurationRun, Entity, request_curation
from demo_project.origin import installed

from .graphs import curate, edges, harvest

pytestmark = pytest.mark.django_db


def distributions() -> dict[str, Any]:
    """What importlib.metadata finds, the first of each name as an import would."""
    found: dict[str, Any] = {}
    for each in importlib.metadata.distributions():
        found.setdefault(str(canonicalize_name(each.metadata["Name"])), each)
    return found


def read_directly() -> dict[tuple[str, str], bool]:
    """Each edge and whether it is a conflict, by another way to the same rules.

    Extras are spread until nothing changes any more.
    """
    known, extras = distributions(), defaultdict[str, set[str]](set)
    found: dict[tuple[str, str], bool] = {}
    before = -1
    while before != (before := len(found) + sum(map(len, extras.values()))):
        for name, distribution in known.items():
            for line in map(Requirement, distribution.requires or []):
                if line.marker is None or any(
                    line.marker.evaluate({"extra": extra}) for extra in {"", *extras[name]}
                ):
                    target = str(canonicalize_name(line.name))
                    extras[target] |= set(line.extras)
                    fits = target not in known or line.specifier.contains(
                        known[target].version, prereleases=True
                    )
                    if name != target:
                        found[name, target] = found.get((name, target), False) or not fits
    return found


def test_graph_is_what_importlib_metadata_says() -> None:
    for name, told in installed().items():
        harvest(name, *told["requires_dist"], version=told["version"])
    curate()
    edges = graph_as_json()["edges"]
    found = {(each["source"], each["target"]): each["conflict"] for each in edges}
    assert found == read_directly()
    assert len(found) > 30
    nodes = {node["name"]: node["version"] for node in graph_as_json()["nodes"] if node["version"]}
    assert nodes == {name: each.version for name, each in distributions().items()}


def test_names_are_normalised_and_what_is_only_required_is_an_entity() -> None:
    harvest("a", "B.c_D>=1", "Missing_One")
    harvest("b-c-d")
    curate()
    assert edges() == {("a", "b-c-d"), ("a", "missing-one")}
    assert (find("Missing.One")["version"], find("A")["version"]) == ("", "1.0")


def test_markers_hold_for_this_environment_and_extras_where_they_are_asked_for() -> None:
    harvest(
        "a", "never; python_version < '3'", "always; python_version > '3'", "b[x.Y]", "a[more]",
        "by-more; extra == 'more'",
    )  # fmt: skip
    harvest("b", "by-x; extra == 'x-y'", "by-z; extra == 'z'", "both", "both; extra == 'x-y'")
    curate()
    told = {(each["source"], each["target"]): each["extra"] for each in graph_as_json()["edges"]}
    assert told == {
        ("a", "always"): "",
        ("a", "b"): "",
        ("a", "by-more"): "more",
        ("b", "both"): "",
        ("b", "by-x"): "x-y",
    }


def test_version_that_does_not_satisfy_all_lines_is_a_conflict() -> None:
    harvest("a", "b>=2", "c", "d<2", "d!=1.5rc1", "gone>=9", "odd==1", "e @ https://host/e.zip")
    for name, version in {
        "b": "1.9",
        "c": "3",
        "d": "1.5rc1",
        "odd": "no version",
        "e": "1",
    }.items():
        harvest(name, version=version)
    assert curate()["rank"]["conflicts"] == 2
    conflicts = {each["target"]: each["specifier"] for each in graph_as_json()["edges"]
                 if each["conflict"]}  # fmt: skip
    assert conflicts == {"b": ">=2", "d": "!=1.5rc1,<2"}


def test_requirement_that_nobody_can_read_is_kept_and_stops_nothing() -> None:
    harvest("a", "b", "???", "c (>=")
    assert curate()["parse"] == {"requirements": 1, "unreadable": 2}
    assert find("a")["unreadable"] == ["???", "c (>="]
    assert edges() == {("a", "b")}


def test_orphans_and_ranks_survive_a_circle() -> None:
    harvest("top", "left", "right")
    harvest("left", "right")
    harvest("right", "left", "leaf")
    curate()
    ranks = {each.name: (each.orphan, each.dependents, each.pulls_in)
             for each in Entity.objects.all()}  # fmt: skip
    assert ranks == {
        "top": (True, 0, 3),
        "left": (False, 2, 2),
        "right": (False, 2, 2),
        "leaf": (False, 3, 0),
    }


def test_second_pass_changes_nothing() -> None:
    for name, told in list(installed().items())[:20]:
        harvest(name, *told["requires_dist"], version=told["version"])
    stats, graph = curate(), graph_as_json()
    assert curate() == stats
    assert graph_as_json() == graph


def test_what_vanished_is_pruned() -> None:
    harvest("a", "b")
    harvest("b", "c", "d")
    curate()
    Source.objects.filter(name="a").update(listed=False)
    harvest("b", "c")
    assert curate()["prune"] == {"vanished": 2}
    assert edges() == {("b", "c")}
    assert not Entity.objects.filter(name__in=["a", "d"]).exists()


def test_nothing_harvested_is_an_empty_graph() -> None:
    curate()
    assert graph_as_json() == {"nodes": [], "edges": []}
    assert heaviest_chains() == []


@pytest.fixture
def small() -> None:
    harvest("app", "web", "db[c]", licence="MIT")
    harvest("web", "http", licence="BSD-3-Clause")
    harvest("http", "idna", licence="")
    harvest("db", "db-c; extra == 'c'", licence="MIT")
    harvest("tool", "http")
    curate()


@pytest.mark.usefixtures("small")
def test_others_ask_the_graph() -> None:
    assert dependents_of("http") == {"tool": 1, "web": 1, "app": 2}
    assert dependencies_of("app") == {"db": 1, "web": 1, "db-c": 2, "http": 2, "idna": 3}
    assert licences_under("APP") == {
        "BSD-3-Clause": ["web"],
        "MIT": ["app", "db"],
        "unknown": ["db-c", "http", "idna"],
    }
    chains = [["app", "web", "http", "idna"], ["tool", "http", "idna"]]
    assert heaviest_chains() == chains
    assert heaviest_chains(1) == chains[:1]


@pytest.mark.usefixtures("small")
def test_name_that_is_unknown_is_answered_with_what_is_near() -> None:
    with pytest.raises(LookupError, match="there is no 'htpp', but http"):
        find("htpp")


def test_harvested_tells_what_the_origin_told(django_assert_num_queries: Any) -> None:
    harvest("b", "c>1", version="2", licence="MIT")
    harvest("a")
    Source.objects.filter(name="a").update(listed=False)
    with django_assert_num_queries(1):
        assert harvested() == [Metadata("b", "2", license="MIT", requires_dist=["c>1"])]


def test_many_requests_make_one_pass_and_one_rerun() -> None:
    first, second, third = request_curation(), request_curation(), request_curation()
    assert first.created
    assert (second.reason, second.rerun) == (third.reason, third.rerun) == ("locked", True)
    assert CurationRun.objects.count() == 1
    assert (first.run.lane, first.run.lock_key) == ("bulk", "graph")


def test_request_of_a_transaction_that_is_rolled_back_leaves_nothing() -> None:
    with transaction.atomic():
        request_curation()
        transaction.set_rollback(True)
    assert not CurationRun.objects.exists()
