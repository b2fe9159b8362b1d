"""An origin of a few distributions, all well-behaved until a test says otherwise."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pytest_django import Settings

from demo_project.origin import Act, Character, Origin


def metadata(name: str, version: str = "1.0") -> dict[str, object]:
    """What an origin tells of a distribution."""
    return {"name": name, "version": version, "summary": f"{name}!", "requires_dist": ["b>=1"]}


@contextmanager
def serving(origin: Origin) -> Iterator[Origin]:
    """The origin answers, in a thread of its own."""
    thread = threading.Thread(target=origin.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield origin
    finally:
        origin.shutdown()
        thread.join()
        origin.server_close()


@pytest.fixture
def origin(settings: Settings) -> Iterator[Origin]:
    origin = Origin(("127.0.0.1", 0), 1, {name: metadata(name) for name in ("a", "b", "c")})
    origin.characters = dict.fromkeys(origin.catalogue, Character())
    settings.ORIGIN_URL = f"http://127.0.0.1:{origin.server_port}"
    with serving(origin):
        yield origin


def behave(origin: Origin, name: str, *first: Act, then: Act = Act.GOOD) -> None:
    """From now on this distribution behaves like this."""
    origin.characters[name] = Character(first, then)
