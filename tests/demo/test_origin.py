"""The origin misbehaves by its seed, and in the end only as it should."""

import json
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest

from demo_project.origin import DECK, Act, Origin, canonical, deal, installed, licence_of

from .conftest import behave, serving

NAMES = [f"dist-{number}" for number in range(len(DECK))]
opener = build_opener(ProxyHandler({}))


@pytest.fixture
def origin() -> Iterator[Origin]:
    with serving(Origin(("127.0.0.1", 0), 1, installed())) as server:
        yield server


def get(origin: Origin, path: str) -> bytes:
    with opener.open(f"http://127.0.0.1:{origin.server_port}{path}", timeout=1) as response:
        return response.read()


def django(origin: Origin, *first: Act, then: Act = Act.GOOD) -> str:
    """The path of a distribution that behaves like this from now on."""
    behave(origin, "django", *first, then=then)
    return "/dist/django"


def test_same_seed_deals_the_same_characters() -> None:
    assert deal(NAMES, 1) == deal(reversed(NAMES), 1)


def test_another_seed_deals_others() -> None:
    assert deal(NAMES, 1) != deal(NAMES, 2)


def test_each_character_is_dealt() -> None:
    assert sorted(deal(NAMES, 7).values(), key=repr) == sorted(DECK, key=repr)


def test_fifteen_distributions_meet_every_act() -> None:
    acts = {act for each in deal(NAMES[:15], 1).values() for act in (*each.first, each.then)}
    assert acts == set(Act)


def test_dice_of_a_request_depend_on_its_number_alone() -> None:
    one, two = (Origin(("127.0.0.1", 0), 3, installed(5)) for _ in range(2))
    name = next(iter(one.catalogue))
    first, second = ([server.decide(name)[1].random() for _ in range(3)] for server in (one, two))
    assert first == second
    assert len(set(first)) == 3
    one.server_close()
    two.server_close()


def test_transient_misbehaviour_ends_before_a_run_gives_up() -> None:
    for character in DECK:
        if character.then is Act.GOOD and len(character.first) > 5:
            assert set(character.first) == {Act.UNAVAILABLE}, "only the outage outlasts a run"
        else:
            assert len(character.first) <= 2


def test_index_lists_what_is_installed(origin: Origin) -> None:
    listing = json.loads(get(origin, "/index"))
    assert listing["django"] == version("django")
    assert set(listing) == {canonical(name) for name in listing}


def test_good_answer_is_the_metadata(origin: Origin) -> None:
    told = json.loads(get(origin, django(origin)))
    assert told["version"] == version("django")
    assert any(requirement.startswith("asgiref") for requirement in told["requires_dist"])


def test_retry_after_comes_as_seconds_then_as_a_date(origin: Origin) -> None:
    path = django(origin, Act.BUSY_SECONDS, Act.BUSY_DATE)
    with pytest.raises(HTTPError) as seconds:
        get(origin, path)
    with pytest.raises(HTTPError) as date:
        get(origin, path)
    assert seconds.value.code == date.value.code == 429
    assert 1 <= int(seconds.value.headers["Retry-After"]) <= 4
    assert parsedate_to_datetime(date.value.headers["Retry-After"]).tzinfo
    assert json.loads(get(origin, path))["name"] == "django"
    for error in (seconds, date):
        error.value.close()


def test_reset_is_a_reset(origin: Origin) -> None:
    with pytest.raises(ConnectionResetError):
        get(origin, django(origin, Act.RESET))


def test_not_found_and_malformed_stay_so(origin: Origin) -> None:
    path = django(origin, then=Act.NOT_FOUND)
    for _ in range(2):
        with pytest.raises(HTTPError) as gone:
            get(origin, path)
        assert gone.value.code == 404
        gone.value.close()
    path = django(origin, then=Act.MALFORMED)
    assert get(origin, path) == get(origin, path) != b""


def test_unknown_distribution_is_not_found(origin: Origin) -> None:
    with pytest.raises(HTTPError) as gone:
        get(origin, "/dist/no-such-thing")
    assert gone.value.code == 404
    gone.value.close()


def test_stats_count_what_was_answered(origin: Origin) -> None:
    get(origin, django(origin))
    assert json.loads(get(origin, "/stats")) == {"good": 1}


@pytest.mark.parametrize(
    ("told", "licence"),
    [
        ({"license_expression": "MIT", "license": "all of it"}, "MIT"),
        ({"license": "a\nb", "classifier": ["License :: OSI Approved :: Zope"]}, "Zope"),
        ({"license": " a line\nanother"}, "a line"),
        ({}, ""),
    ],
)
def test_licence_is_the_shortest_that_is_told(told: dict[str, Any], licence: str) -> None:
    assert licence_of(told) == licence
