"""Clients: nothing is repeated in silence, nobody waits long, and a server that failed is left."""

import logging
import os
import socket
import threading
import time
from pathlib import Path

import pytest
import redis
from django.conf import settings

from runcontract.exceptions import TransportUnavailable
from runcontract.transport import Parcel, Station, breaker_of, client, head, lanes, send, take
from runcontract.transport import connection as module
from runcontract.transport.connection import BLOCK, LEFT_ALONE, PATIENT, QUICK, UNHURRIED, Breaker
from tests.support.servers import hanging

FORMS = {
    "url": {"URL": "redis://localhost:1/3"},
    "tls": {"URL": "rediss://localhost:1/3"},
    "host": {
        "HOST": "localhost",
        "PORT": 1,
        "DB": 3,
        "REDIS_CLIENT_KWARGS": {"retry_on_error": [redis.TimeoutError], "socket_timeout": 300},
    },
    "socket": {"UNIX_SOCKET_PATH": "/nowhere", "DB": 3},
    "sentinel": {
        "SENTINELS": [("localhost", 1)],
        "MASTER_NAME": "mymaster",
        "DB": 3,
        "SOCKET_TIMEOUT": 300,
        "CONNECTION_KWARGS": {"retry_on_error": [redis.ConnectionError]},
    },
    "cache": {"USE_REDIS_CACHE": "default"},
}
DEFAULTS = redis.Redis()
"""The cache's own client, as redis-py makes it."""


@pytest.mark.parametrize("patience", [QUICK, PATIENT, UNHURRIED])
@pytest.mark.parametrize("form", FORMS)
def test_every_client_is_made_without_repeats_and_with_short_timeouts(
    form: str, patience: float, settings, monkeypatch
) -> None:
    settings.RQ_QUEUES = {"default": FORMS[form]}
    if form == "cache":
        monkeypatch.setattr(module, "get_redis_connection", lambda config: DEFAULTS)
    made = client("default", patience=patience)
    line = made.connection_pool.make_connection()
    assert line.retry.get_retries() == 0
    assert line.retry_on_error in ([], None)
    assert line.socket_timeout == patience
    assert line.socket_connect_timeout == min(patience, 5)
    assert line.health_check_interval == 0
    assert not made.get_encoder().decode_responses
    assert form == "cache" or line.db == 3


def test_client_of_the_cache_is_left_as_it_was(settings, monkeypatch) -> None:
    before = dict(DEFAULTS.connection_pool.connection_kwargs)
    settings.RQ_QUEUES = {"default": FORMS["cache"]}
    monkeypatch.setattr(module, "get_redis_connection", lambda config: DEFAULTS)
    assert client("default").connection_pool is not DEFAULTS.connection_pool
    assert DEFAULTS.connection_pool.connection_kwargs == before


def test_lanes_of_one_server_share_a_client_and_others_do_not(settings) -> None:
    url = settings.RQ_QUEUES["default"]["URL"]
    settings.RQ_QUEUES = {"a": {"URL": url}, "b": {"URL": url}, "c": {"URL": url[:-1] + "1"}}
    assert lanes() == ["a", "b", "c"]
    assert client("a") is client("b") is not client("c")
    assert client("a") is not client("a", patience=PATIENT)
    assert breaker_of("a") is breaker_of("b") is not breaker_of("c")


def test_rq_does_not_stretch_the_patience_of_our_client() -> None:
    def never(*_: object) -> None:
        raise AssertionError

    Station(["default"], name="w", next_run=never, perform_run=never)
    pool = client("default", patience=PATIENT).connection_pool
    assert pool.connection_kwargs["socket_timeout"] == PATIENT


class Mute:
    """A server that takes everything and never answers, as behind a half dead line."""

    def __init__(self, path: Path) -> None:
        self.received = b""
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(os.fspath(path))
        self._server.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(line,), daemon=True).start()

    def _read(self, line: socket.socket) -> None:
        while data := line.recv(65536):
            self.received += data
            if b"HELLO" in data or b"CLIENT" in data:
                line.sendall(b"+OK\r\n" * (data.count(b"HELLO") + data.count(b"CLIENT")))

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def mute(tmp_path, settings):
    path = Path(os.path.relpath(tmp_path / "s"))
    server = Mute(path)
    settings.RQ_QUEUES = {"default": {"URL": f"unix://{path.resolve()}?db=0&protocol=2"}}
    yield server
    server.close()


def test_command_whose_answer_is_lost_is_sent_once(mute) -> None:
    begun = time.monotonic()
    with pytest.raises(TransportUnavailable):
        send([Parcel("default", "only-once-1-1")])
    assert time.monotonic() - begun < 1
    assert mute.received.count(b"only-once-1-1") == 1


@pytest.mark.chaos
def test_pop_from_a_server_that_hangs_ends_and_is_not_repeated(valkey) -> None:
    begun = time.monotonic()
    with hanging(valkey), pytest.raises(TransportUnavailable):
        take(["default"], block=True)
    assert BLOCK < time.monotonic() - begun < PATIENT + 2


@pytest.mark.chaos
def test_caller_waits_a_moment_for_a_server_that_hangs_and_then_not_at_all(valkey) -> None:
    with hanging(valkey):
        waits = []
        for _ in range(5):
            begun = time.monotonic()
            with pytest.raises(TransportUnavailable):
                send([Parcel("default", "lab-mailrun-1-0")])
            waits.append(time.monotonic() - begun)
    assert waits[0] < 0.2 + 0.3
    assert max(waits[1:]) < 0.02


def test_breaker_opens_for_a_while_and_says_so_once(monkeypatch, caplog) -> None:
    caplog.set_level(logging.INFO, "runcontract")
    breaker, moment = Breaker(), [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: moment[0])
    for _ in range(3):
        with pytest.raises(TransportUnavailable), breaker.guard():
            raise redis.ConnectionError("refused")
        assert breaker.open
        with pytest.raises(TransportUnavailable), breaker.guard():
            pytest.fail("It was not left alone.")
        moment[0] += LEFT_ALONE
        assert not breaker.open
    with breaker.guard():
        pass
    with breaker.guard():
        pass
    assert caplog.text.count("Redis does not answer") == 1
    assert caplog.text.count("Redis answers again") == 1


def test_breaker_leaves_errors_of_others_alone() -> None:
    breaker = Breaker()
    with pytest.raises(KeyError), breaker.guard():
        raise KeyError("ours")
    assert not breaker.open


def test_lane_in_good_order_has_a_head(redis_server) -> None:
    assert head("default") is None
    send([Parcel("default", "one"), Parcel("default", "two")])
    assert head("default") == b"one"


def test_settings_that_change_are_followed(settings) -> None:
    before = client("default")
    settings.RQ_QUEUES = {"default": {"URL": "redis://localhost:1/0"}}
    assert client("default") is not before


def test_lanes_of_the_tests_are_as_the_settings_say() -> None:
    assert lanes() == list(settings.RQ_QUEUES)
