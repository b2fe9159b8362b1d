"""What is done with a lane, whatever somebody has put there."""

import logging
from datetime import timedelta

import pytest

from runcontract.exceptions import TransportUnavailable
from runcontract.transport import (
    Parcel,
    breaker_of,
    eviction_warning,
    head,
    hint,
    lanes_by_server,
    length,
    one_lane_per_server,
    put_back,
    send,
    take,
    workers_on,
)
from runcontract.transport.messages import hint_key
from tests.support.servers import read_only

LANE = "rq:queue:default"


def test_messages_keep_their_order_over_chunks_and_lanes(redis_server) -> None:
    send(Parcel("bulk" if number % 3 else "default", str(number)) for number in range(2500))
    assert length("default") + length("bulk") == 2500
    taken = [take(["default", "bulk"], block=False) for _ in range(2501)]
    assert taken[-1] is None
    numbers = [int(message) for _, message in filter(None, taken)]
    assert numbers == [n for n in range(2500) if n % 3 == 0] + [n for n in range(2500) if n % 3]


def test_hint_lives_as_long_as_its_window(redis_server) -> None:
    key = hint_key("lab.mailrun", "é\n1")
    assert not hint("default", key)
    send([Parcel("default", "a-b-1-0", key, timedelta(hours=24))])
    assert hint("default", key)
    assert 86_300_000 < redis_server.pttl(key) <= 86_400_000
    send([Parcel("default", "a-b-1-0", key, timedelta(microseconds=1))])
    assert redis_server.pttl(key) <= 1


def test_message_that_is_put_back_is_the_next(redis_server) -> None:
    send([Parcel("default", "one"), Parcel("default", "two")])
    lane, message = take(["default"], block=True) or ("", b"")
    put_back(lane, message)
    assert head("default") == b"one"


@pytest.mark.parametrize("block", [True, False])
def test_lane_that_is_no_list_is_dropped_and_the_others_are_served(
    redis_server, block: bool, caplog
) -> None:
    redis_server.hset(LANE, "a", "hash")
    redis_server.rpush("rq:queue:bulk", "message")
    assert take(["default", "bulk"], block=block) == ("bulk", b"message")
    assert not redis_server.exists(LANE)
    assert caplog.text.count("was not a list") == 1
    assert not breaker_of("default").open


def test_broken_lane_is_dropped_where_it_is_met(redis_server) -> None:
    redis_server.set(LANE, "string")
    send([Parcel("bulk", "b1"), Parcel("default", "d1"), Parcel("bulk", "b2")])
    assert redis_server.lrange(LANE, 0, -1) == [b"d1"]
    assert redis_server.lrange("rq:queue:bulk", 0, -1) == [b"b1", b"b2"]
    redis_server.delete(LANE)
    redis_server.zadd(LANE, {"a": 1})
    assert head("default") is None
    assert not breaker_of("default").open


def test_refusal_of_redis_opens_the_breaker(redis_server, caplog) -> None:
    caplog.set_level(logging.INFO, "runcontract")
    with read_only(redis_server), pytest.raises(TransportUnavailable, match="ReadOnlyError"):
        send([Parcel("default", "x")])
    assert breaker_of("default").open
    for operation in (
        lambda: send([Parcel("default", "x")]),
        lambda: take(["default"], block=True),
        lambda: head("default"),
        lambda: length("default"),
        lambda: workers_on("default"),
        lambda: put_back("default", b"x"),
        lambda: hint("default", "key"),
    ):
        with pytest.raises(TransportUnavailable, match="left alone"):
            operation()
    assert caplog.text.count("does not answer") == 1


def test_lanes_are_grouped_by_server(settings) -> None:
    url = settings.RQ_QUEUES["default"]["URL"]
    other = {"URL": "redis://localhost:1/0"}
    settings.RQ_QUEUES = {"a": {"URL": url}, "x": other, "b": {"URL": url}, "y": other}
    assert lanes_by_server() == [["a", "b"], ["x", "y"]]
    assert one_lane_per_server() == ["a", "x"]


def test_server_that_may_evict_is_warned_about(redis_server) -> None:
    assert eviction_warning("default") is None
    redis_server.config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert "allkeys-lru" in (eviction_warning("default") or "")
    finally:
        redis_server.config_set("maxmemory-policy", "noeviction")
    breaker_of("default").failed(OSError())
    assert eviction_warning("default") is None
