"""Each way in which an origin fails, said in runcontract's words."""

import pytest
from pytest_django import Settings

from demo_project.harvester import client
from demo_project.harvester.client import Metadata, fetch_index, fetch_metadata
from demo_project.origin import MALFORMED, Act, Origin
from runcontract import PermanentError, TransientError

from .conftest import behave


def test_index_and_metadata_of_a_good_origin(origin: Origin) -> None:
    assert fetch_index() == {"a": "1.0", "b": "1.0", "c": "1.0"}
    assert Metadata.parse(fetch_metadata("a"), "a") == Metadata(
        name="a", version="1.0", summary="a!", requires_dist=["b>=1"]
    )


@pytest.mark.parametrize("act", [Act.BUSY_SECONDS, Act.BUSY_DATE])
def test_429_is_transient_and_brings_its_retry_after(origin: Origin, act: Act) -> None:
    behave(origin, "a", act)
    with pytest.raises(TransientError, match="answered 429") as error:
        fetch_metadata("a")
    assert error.value.retry_after


@pytest.mark.parametrize("act", [Act.UNAVAILABLE, Act.RESET, Act.STALLED])
def test_what_may_pass_is_transient(
    origin: Origin, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PATIENCE", 0.2)
    monkeypatch.setattr("demo_project.origin.STALL", 0.5)
    behave(origin, "a", act)
    with pytest.raises(TransientError):
        fetch_metadata("a")


def test_origin_that_is_not_there_is_transient(settings: Settings) -> None:
    settings.ORIGIN_URL = "http://127.0.0.1:9"
    with pytest.raises(TransientError, match="refused"):
        fetch_index()


def test_404_is_permanent(origin: Origin) -> None:
    behave(origin, "a", then=Act.NOT_FOUND)
    with pytest.raises(PermanentError, match="answered 404"):
        fetch_metadata("a")


@pytest.mark.parametrize("body", MALFORMED)
def test_malformed_metadata_is_permanent(body: bytes) -> None:
    with pytest.raises(PermanentError, match="malformed metadata of a"):
        Metadata.parse(body.replace(b"NAME", b'"a"'), "a")


def test_lone_surrogate_is_malformed() -> None:
    with pytest.raises(PermanentError, match="malformed"):
        Metadata.parse(b'{"name": "a", "version": "1", "requires_dist": ["\\ud800"]}', "a")
