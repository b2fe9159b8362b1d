"""Connections to Redis, made in one place: no silent repeats, short timeouts, a circuit breaker.

redis-py repeats each command up to ten times by default, blocking and non-idempotent ones too;
every client of ours is made here, so that none does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import redis
from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django_rq.connection_utils import filter_connection_params, get_redis_connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..exceptions import TransportUnavailable

logger = logging.getLogger("runcontract.transport")

QUICK = 0.1
"""Seconds for each of connect and reply where a caller waits, so at most 0.2 s in all."""
BLOCK = 2
"""Seconds that a worker waits in one blocking pop."""
PATIENT = BLOCK + 5.0
"""Seconds for a reply where a blocking pop may wait; longer than the block."""
UNHURRIED = 3.0
"""Seconds where nobody waits: the scheduler's."""
LEFT_ALONE = 5.0
"""Seconds that a server is left alone after it failed."""


def lanes() -> list[str]:
    """The lanes that RQ_QUEUES names, in its order."""
    return list(getattr(django_settings, "RQ_QUEUES", {}))


def _config(lane: str) -> Mapping[str, Any]:
    return django_settings.RQ_QUEUES[lane]


def server_of(lane: str) -> str:
    """A name for the server behind a lane, equal for lanes that share it. May hold secrets."""
    return repr(sorted(filter_connection_params(dict(_config(lane))).items(), key=str))


@cache
def _client(server: str, lane: str, patience: float) -> redis.Redis:
    made = get_redis_connection(dict(_config(lane)))
    pool = made.connection_pool
    options = {
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "socket_timeout": patience,
        "socket_connect_timeout": min(patience, 5.0),
        "health_check_interval": 0,
        "decode_responses": False,
    }
    if "USE_REDIS_CACHE" in _config(lane):  # the pool is the cache's own
        kwargs = pool.connection_kwargs | options | {"retry_on_error": []}
        own = redis.ConnectionPool(connection_class=pool.connection_class, **kwargs)
        return redis.Redis(connection_pool=own)
    pool.connection_kwargs.update(options)
    pool.connection_kwargs.pop("retry_on_error", None)
    return made


def client(lane: str, *, patience: float = QUICK) -> redis.Redis:
    """The client of a lane's server; one per process, server and patience, safe across a fork."""
    server = server_of(lane)
    first = next(name for name in lanes() if server_of(name) == server)
    return _client(server, first, patience)


class Breaker:
    """Leaves a server alone for a while after it failed, so that nobody waits for it in vain."""

    def __init__(self) -> None:
        self._closed_until = 0.0
        self._lock = threading.Lock()

    @property
    def open(self) -> bool:
        """Whether the server is left alone just now."""
        return time.monotonic() < self._closed_until

    def failed(self, error: Exception) -> None:
        with self._lock:
            was_open = self._closed_until != 0.0
            self._closed_until = time.monotonic() + LEFT_ALONE
        if not was_open:
            logger.warning(
                "Redis does not answer (%s); runs wait in the journal.", type(error).__name__
            )

    def answered(self) -> None:
        if self._closed_until:
            with self._lock:
                self._closed_until = 0.0
            logger.warning("Redis answers again.")

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turns every failure of Redis into TransportUnavailable, at once while open."""
        if self.open:
            raise TransportUnavailable("Redis failed a moment ago and is left alone for 5 s.")
        try:
            yield
        except (redis.RedisError, OSError) as error:
            self.failed(error)
            raise TransportUnavailable(
                f"Redis did not take the command ({type(error).__name__})."
            ) from error
        self.answered()


_breakers: dict[str, Breaker] = {}


def breaker_of(lane: str) -> Breaker:
    """The breaker of a lane's server; one per process."""
    return _breakers.setdefault(server_of(lane), Breaker())


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "RQ_QUEUES":
        _client.cache_clear()
        _breakers.clear()


setting_changed.connect(_forget, dispatch_uid="runcontract.transport")
