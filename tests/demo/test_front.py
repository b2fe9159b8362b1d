"""The story's page, empty and in the middle, and what it leaves alone."""

import pytest
from django.test import Client

from demo_project.demo.story import begin

from .graphs import curate, harvest

pytestmark = pytest.mark.django_db


def test_page_of_a_story_that_has_not_begun(client: Client) -> None:
    page = client.get("/").content.decode()
    for words in ("No pass has ended yet", "Nobody has asked yet", "Nothing has failed"):
        assert words in page
    assert client.get("/graph.json").json() == {"nodes": [], "edges": []}


def test_page_shows_all_four_apps_to_everybody(client: Client) -> None:
    begin(seed=1)
    page = client.get("/").content.decode()
    for table in ("harvest_runs", "curation_runs", "agent_runs", "deliveries"):
        assert table in page
    assert "Log in" in page


def test_graph_is_told_as_it_stands(client: Client) -> None:
    harvest("a", "b")
    curate()
    told = client.get("/graph.json").json()
    assert [node["name"] for node in told["nodes"]] == ["a", "b"]
    assert [(edge["source"], edge["target"]) for edge in told["edges"]] == [("a", "b")]


@pytest.mark.parametrize("address", ["/", "/graph.json"])
def test_nothing_can_be_posted(client: Client, address: str) -> None:
    assert client.post(address).status_code == 405


def test_page_asks_a_few_statements_however_much_there_is(
    client: Client, django_assert_max_num_queries: object
) -> None:
    with django_assert_max_num_queries(20):  # type: ignore[operator]
        client.get("/")
