"""What is done with a lane: send, take, look at its head; and how a server's loss is noticed."""

from __future__ import annotations

import logging
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import redis
from redis.exceptions import NoPermissionError

from ..exceptions import TransportUnavailable
from .connection import BLOCK, PATIENT, QUICK, UNHURRIED, breaker_of, client, lanes, server_of

logger = logging.getLogger("runcontract.transport")

CHUNK = 1000
EPOCH = "runcontract:epoch"
EPOCH_TTL = timedelta(days=7)
_EPOCH_FORM = re.compile(rb"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message: an address for a lane, and the hint that its job_id is held."""

    lane: str
    address: str
    hint: str | None = None
    hold: timedelta | None = None


def key_of(lane: str) -> str:
    """The Redis key of a lane, which is RQ's own for a queue of that name."""
    return f"rq:queue:{lane}"


def hint_key(label: str, job_id: str) -> str:
    """The key that says that a job_id is probably held."""
    return f"runcontract:held:{label}:{job_id}"


def send(parcels: Iterable[Parcel], *, patience: float = QUICK) -> None:
    """Hand messages over, in their order. Raises TransportUnavailable; then some may be there."""
    by_server: dict[str, list[Parcel]] = defaultdict(list)
    for parcel in parcels:
        by_server[server_of(parcel.lane)].append(parcel)
    for waiting in by_server.values():
        first = waiting[0].lane
        connection = client(first, patience=patience)
        for chunk in _chunks(waiting):
            with breaker_of(first).guard():
                _hand_over(connection, chunk)


def _hand_over(connection: redis.Redis, chunk: Sequence[Parcel]) -> None:
    with connection.pipeline(transaction=False) as pipe:
        names = _fill(pipe, chunk)
        answers = pipe.execute(raise_on_error=False)
    broken = []
    for name, answer in zip(names, answers, strict=True):
        if name and isinstance(answer, redis.ResponseError) and _is_wrong_type(answer):
            _drop_broken(connection, name)
            broken.append(name)
        elif isinstance(answer, Exception):
            raise answer
    if broken:
        _hand_over(connection, [parcel for parcel in chunk if parcel.lane in broken])


def _chunks(parcels: list[Parcel]) -> Iterable[Sequence[Parcel]]:
    return (parcels[start : start + CHUNK] for start in range(0, len(parcels), CHUNK))


def _fill(pipe: redis.client.Pipeline, chunk: Sequence[Parcel]) -> list[str]:
    """The commands of a chunk; for each the lane that it fills, or nothing."""
    names: list[str] = []
    by_lane: dict[str, list[str]] = defaultdict(list)
    for parcel in chunk:
        by_lane[parcel.lane].append(parcel.address)
        if parcel.hint and parcel.hold:
            pipe.set(
                parcel.hint, parcel.address, px=max(1, int(parcel.hold.total_seconds() * 1000))
            )
            names.append("")
    for lane, addresses in by_lane.items():
        pipe.rpush(key_of(lane), *addresses)
        names.append(lane)
    return names


def take(names: Sequence[str], *, block: bool) -> tuple[str, bytes] | None:
    """Pop the next message of the first lane that has one; None if none came in time.

    One command, no intermediate list, no acknowledgement: what a crash loses is found by the
    sweep. Raises TransportUnavailable.
    """
    connection = client(names[0], patience=PATIENT)
    with breaker_of(names[0]).guard():
        try:
            return _pop(connection, names, block)
        except redis.ResponseError as error:
            if not _is_wrong_type(error):
                raise
            for name in names:
                _drop_broken(connection, name)
            return _pop(connection, names, block)


def _pop(connection: redis.Redis, names: Sequence[str], block: bool) -> tuple[str, bytes] | None:
    if block:
        popped = connection.blpop([key_of(name) for name in names], timeout=BLOCK)
        return (_lane(popped[0]), _bytes(popped[1])) if popped else None
    for name in names:
        message = connection.lpop(key_of(name))
        if message is not None:
            return name, _bytes(message)
    return None


def _lane(key: Any) -> str:
    return _bytes(key).decode().removeprefix("rq:queue:")


def _bytes(value: Any) -> bytes:
    """Every client of ours is made without decode_responses."""
    return bytes(value)


def put_back(lane: str, message: bytes) -> None:
    """Put a message that was taken too late back at the head of its lane, if Redis is there."""
    with breaker_of(lane).guard():
        client(lane).lpush(key_of(lane), message)


def head(lane: str) -> bytes | None:
    """The oldest message of a lane, left where it is. Raises TransportUnavailable."""
    connection = client(lane, patience=UNHURRIED)
    with breaker_of(lane).guard():
        try:
            first = connection.lindex(key_of(lane), 0)
        except redis.ResponseError as error:
            if not _is_wrong_type(error):
                raise
            _drop_broken(connection, lane)
            return None
    return None if first is None else _bytes(first)


def length(lane: str) -> int:
    """How many messages wait in a lane. Raises TransportUnavailable."""
    with breaker_of(lane).guard():
        return int(client(lane).llen(key_of(lane)))


_DROP = """
if redis.call('TYPE', KEYS[1]).ok == 'list' then return 0 end
return redis.call('DEL', KEYS[1])
"""


def _drop_broken(connection: redis.Redis, lane: str) -> None:
    """Delete a lane's key that is not a list: it can carry nothing until it is gone."""
    if connection.eval(_DROP, 1, key_of(lane)):
        logger.warning("The key of lane %s was not a list; it was deleted.", lane)


def _is_wrong_type(error: redis.ResponseError) -> bool:
    return "WRONGTYPE" in str(error)


def hint(lane: str, key: str) -> bool:
    """Whether Redis believes that a job_id is held. Raises TransportUnavailable."""
    with breaker_of(lane).guard():
        return bool(client(lane).exists(key))


def epoch(lane: str) -> str | None:
    """The memory that a lane's server has had without a break; None if it has none of ours.

    The server's run_id is part of it, so that a restart or a failover is another epoch.
    Raises TransportUnavailable.
    """
    connection = client(lane, patience=UNHURRIED)
    with breaker_of(lane).guard():
        try:
            stored = connection.getex(EPOCH, ex=EPOCH_TTL)
        except redis.ResponseError as error:
            if not _is_wrong_type(error):
                raise
            return None
        if stored is None or _EPOCH_FORM.fullmatch(_bytes(stored)) is None:
            return None
        return f"{_bytes(stored).decode()}@{_run_id(connection)}"


def start_epoch(lane: str) -> str:
    """Begin a new epoch and return it. Raises TransportUnavailable."""
    connection = client(lane, patience=UNHURRIED)
    with breaker_of(lane).guard():
        name = uuid.uuid4().hex
        connection.set(EPOCH, name, ex=EPOCH_TTL)
        return f"{name}@{_run_id(connection)}"


def _run_id(connection: redis.Redis) -> str:
    """Which process of the server this is; empty where an ACL does not let us know."""
    try:
        return str(connection.info("server").get("run_id", ""))
    except NoPermissionError:
        return ""


def workers_on(lane: str) -> int:
    """How many workers listen to a lane, as RQ's registry has them. Raises TransportUnavailable."""
    with breaker_of(lane).guard():
        return int(client(lane).scard(f"rq:workers:{lane}"))


def one_lane_per_server() -> list[str]:
    """A lane for each server, the first that RQ_QUEUES names."""
    return list({server_of(lane): lane for lane in reversed(lanes())}.values())[::-1]


def lanes_by_server() -> list[list[str]]:
    """All lanes, those of one server together."""
    return [
        [other for other in lanes() if server_of(other) == server_of(lane)]
        for lane in one_lane_per_server()
    ]


def eviction_warning(lane: str) -> str | None:
    """A sentence if the lane's server may evict keys; None if not, or if it does not say."""
    try:
        with breaker_of(lane).guard():
            policy = client(lane, patience=2.0).info("memory").get("maxmemory_policy")
    except TransportUnavailable:
        return None
    if policy in (None, "noeviction"):
        return None
    return (
        f"Redis may evict keys (maxmemory-policy {policy}), messages among them; the sweep finds "
        "their runs again, but set noeviction."
    )
