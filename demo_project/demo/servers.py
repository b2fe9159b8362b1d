"""The two servers, from pip unless the environment names others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from runcontract.testing.server import Server
from runcontract.testing.servers import Postgres, Valkey


class Embedded:
    """One embedded server as a service of the keeper; it starts again on its data."""

    def __init__(self, server: Server) -> None:
        self.name = server.name
        self._server = server

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._server.start()

    def ask_to_stop(self) -> None:
        """Stop it in order, which takes well under a second here."""
        self._server.stop()

    def kill(self) -> None:
        """Whatever is left of it."""
        self._server.crash()
        self._server.close()

    @property
    def pid(self) -> int | None:
        """The server's main process."""
        return self._server.process.pid if self._server.process else None

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._server.process.poll() if self._server.process else 0


def embedded(state: Path) -> Iterator[Embedded]:
    """A server for each of the two that the environment does not name."""
    if "DATABASE_URL" not in os.environ:
        yield Embedded(Postgres(state))
    if "REDIS_URL" not in os.environ:
        yield Embedded(Valkey(state))
