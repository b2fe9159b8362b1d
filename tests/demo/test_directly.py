"""The graph read from importlib.metadata, by which the demo measures its own."""

import importlib.metadata
from types import SimpleNamespace
from typing import Any

import pytest

from demo_project.demo.directly import edges_among


def test_what_is_known_of_this_environment() -> None:
    found = edges_among({"django", "pytest", "asgiref"})
    assert {("django", "asgiref"), ("django", "sqlparse"), ("pytest", "pluggy")} <= found
    assert {source for source, _ in found} <= {"django", "pytest", "asgiref"}
    assert ("django", "argon2-cffi") not in found  # only by an extra that nobody asks for


def test_extra_is_followed_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str, *requires: str) -> Any:
        return SimpleNamespace(metadata={"Name": name}, requires=list(requires))

    there = [
        distribution("One", "two[Fast]", "nobody can read this"),
        distribution("two", "three; extra == 'fast'", "four; extra == 'slow'"),
        distribution("two", "shadowed"),
    ]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: there)
    assert edges_among({"one", "two"}) == {("one", "two"), ("two", "three")}
    assert edges_among({"two"}) == set()
