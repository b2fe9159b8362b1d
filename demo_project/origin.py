"""An origin server that misbehaves as real ones do, by a fixed seed.

It serves the metadata of every Python distribution that is installed beside it: `/index` lists
them, `/dist/<name>` tells one, `/stats` counts what was answered. What happens to a request is
settled by the seed, the distributions and the number of the request for this one, so a run can
be repeated. Transient misbehaviour ends after a few requests; what is not found or malformed
stays so.

    python -m demo_project.origin --port 8009 --seed 1
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import formatdate
from enum import StrEnum
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from random import Random
from typing import Any


class Act(StrEnum):
    """What the origin does with one request."""

    GOOD = "good"
    BUSY_SECONDS = "429, Retry-After in seconds"
    BUSY_DATE = "429, Retry-After as a date"
    UNAVAILABLE = "503"
    SLOW = "slow"
    STALLED = "stalled"
    RESET = "connection reset"
    NOT_FOUND = "404"
    MALFORMED = "malformed"


@dataclass(frozen=True)
class Character:
    """How a distribution's requests go: `first`, one after the other, then `then` for ever."""

    first: tuple[Act, ...] = ()
    then: Act = Act.GOOD


OUTAGE = Character(first=(Act.UNAVAILABLE,) * 10)
"""Longer than one run tries, so it ends as a dead letter that a later retry can save."""

DECK = (
    Character(then=Act.NOT_FOUND),
    Character(first=(Act.BUSY_SECONDS,)),
    Character(first=(Act.RESET,)),
    Character(then=Act.MALFORMED),
    Character(first=(Act.BUSY_DATE,)),
    Character(first=(Act.UNAVAILABLE,)),
    Character(first=(Act.SLOW,)),
    Character(first=(Act.STALLED,)),
    OUTAGE,
    Character(first=(Act.UNAVAILABLE, Act.BUSY_SECONDS)),
    Character(first=(Act.RESET, Act.UNAVAILABLE)),
    *[Character()] * 13,
)
"""Dealt round and round: from `len(DECK)` distributions on, each character is present."""

STALL = 4.0
"""Seconds; longer than the harvester's patience."""

MALFORMED = (
    b"<html><body>Under maintenance</body></html>",
    b'{"name": "half a doc',
    b'["a", "list"]',
    b'{"name": "somebody-else", "version": "1"}',
    b'{"name": NAME, "version": "1", "summary": "a NUL: \\u0000"}',
)


def canonical(name: str) -> str:
    """The normalised form of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(limit: int | None = None) -> dict[str, dict[str, Any]]:
    """Metadata by canonical name of what this interpreter finds, at most `limit` of them."""
    found: dict[str, dict[str, Any]] = {}
    for distribution in importlib.metadata.distributions():
        told = distribution.metadata.json
        name = canonical(str(told.get("name", "")))
        if not name or name in found:
            continue
        found[name] = {
            "name": name,
            "version": distribution.version,
            "summary": told.get("summary", ""),
            "license": licence_of(told),
            "requires_python": told.get("requires_python", ""),
            "requires_dist": distribution.requires or [],
        }
    return dict(sorted(found.items())[:limit])


def licence_of(told: dict[str, Any]) -> str:
    """The expression; where there is none the classifiers, or the first line of the text."""
    classifiers = [each for each in told.get("classifier", ()) if each.startswith("License ::")]
    classified = ", ".join(each.rpartition(" :: ")[2] for each in classifiers)
    text = str(told.get("license", "")).strip().partition("\n")[0][:200]
    return str(told.get("license_expression", classified or text))


def malformed(name: str, seed: int) -> bytes:
    """What this distribution answers in the place of its metadata, always the same."""
    body = Random(f"{seed}:{name}").choice(MALFORMED)
    return body.replace(b"NAME", json.dumps(name).encode())


def deal(names: Iterable[str], seed: int) -> dict[str, Character]:
    """A character for each name, the same for the same names and seed."""
    shuffled = sorted(names, key=lambda name: sha256(f"{seed}:{name}".encode()).digest())
    return dict(zip(shuffled, cycle(DECK), strict=False))


class Origin(ThreadingHTTPServer):
    """The server. Requests are counted in its memory, so a restart begins anew."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self, address: tuple[str, int], seed: int, catalogue: dict[str, dict[str, Any]]
    ) -> None:
        super().__init__(address, Handler)
        self.seed, self.catalogue = seed, catalogue
        self.characters = deal(catalogue, seed)
        self.stats: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._lock = threading.Lock()

    def decide(self, name: str) -> tuple[Act, Random]:
        """What happens to the next request for this name, and dice for the details."""
        character = self.characters[name]
        with self._lock:
            number = self._requests[name]
            self._requests[name] += 1
            act = character.first[number] if number < len(character.first) else character.then
            self.stats[act] += 1
        return act, Random(f"{self.seed}:{name}:{number}")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is its own business; anything else is told."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Origin

    def do_GET(self) -> None:
        """Answer, or misbehave."""
        catalogue = self.server.catalogue
        kind, _, name = self.path.lstrip("/").partition("/")
        if kind == "index":
            self.answer({each: catalogue[each]["version"] for each in catalogue})
        elif kind == "stats":
            self.answer(dict(self.server.stats))
        elif kind == "dist" and name in catalogue:
            self.misbehave(name)
        else:
            self.refuse(404)

    def misbehave(self, name: str) -> None:
        """Do what the distribution's character says for this request."""
        act, dice = self.server.decide(name)
        good = self.server.catalogue[name]
        match act:
            case Act.NOT_FOUND:
                self.refuse(404)
            case Act.UNAVAILABLE:
                self.refuse(503)
            case Act.BUSY_SECONDS:
                self.refuse(429, str(dice.randint(1, 4)))
            case Act.BUSY_DATE:
                self.refuse(429, formatdate(time.time() + dice.randint(2, 5), usegmt=True))
            case Act.MALFORMED:
                self.send(malformed(name, self.server.seed))
            case Act.RESET:
                self.reset(good, halfway=dice.random() < 0.5)
            case Act.STALLED:
                time.sleep(STALL)
            case Act.SLOW:
                time.sleep(dice.uniform(0.5, 1.2))
                self.answer(good)
            case Act.GOOD:
                self.answer(good)

    def answer(self, content: Any) -> None:
        """200 with JSON."""
        self.send(json.dumps(content).encode())

    def refuse(self, status: int, retry_after: str = "") -> None:
        """An error status, with a Retry-After if there is one."""
        self.send_response(status)
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def reset(self, content: Any, *, halfway: bool) -> None:
        """Drop the connection with a RST, at once or in the middle of the body."""
        if halfway:
            body = json.dumps(content).encode()
            self.send(body[: len(body) // 2], length=len(body))
        now = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        self.close_connection = True
        self.wfile.close()
        self.rfile.close()
        self.connection.close()
        raise ConnectionResetError("as the character says")

    def send(self, body: bytes, length: int | None = None) -> None:
        """200 with this body; `length` is the one that is claimed."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)


def main(argv: list[str] | None = None) -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, default=8009, help="on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same misbehaviour")
    parser.add_argument("--limit", type=int, help="serve this many distributions only")
    options = parser.parse_args(argv)
    origin = Origin(("127.0.0.1", options.port), options.seed, installed(options.limit))
    sys.stdout.write(f"{len(origin.catalogue)} distributions on port {origin.server_port}\n")
    sys.stdout.flush()
    origin.serve_forever()


if __name__ == "__main__":
    main()
