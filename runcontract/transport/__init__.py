"""Redis through RQ: it carries addresses and nothing else, and may vanish at any time.

The only package that knows RQ. Whatever is lost here is found again in the journal.
"""

from .connection import Breaker, breaker_of, client, lanes, server_of
from .messages import (
    Parcel,
    epoch,
    eviction_warning,
    head,
    hint,
    key_of,
    lanes_by_server,
    length,
    one_lane_per_server,
    put_back,
    send,
    start_epoch,
    take,
    workers_on,
)
from .queue import RunQueue
from .station import Station

__all__ = [
    "Breaker",
    "Parcel",
    "RunQueue",
    "Station",
    "breaker_of",
    "client",
    "epoch",
    "eviction_warning",
    "head",
    "hint",
    "key_of",
    "lanes",
    "lanes_by_server",
    "length",
    "one_lane_per_server",
    "put_back",
    "send",
    "server_of",
    "start_epoch",
    "take",
    "workers_on",
]
