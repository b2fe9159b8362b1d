"""One server process: started, stopped, crashed and started again on its data."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

from .places import IS_ROOT, ServerError, find_package, prepare_base

LONGEST_PATH = 90
"""A unix socket's whole path must stay under about 104 bytes."""

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


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
        arguments = self._arguments()
        end = time.monotonic() + timeout
        while True:
            self.process = self._spawn(arguments)
            if self._wait_until_ready(end):
                return self
            if time.monotonic() > end:
                break
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
                preexec_fn=lambda: _die_with(parent, self.stop_signal),  # noqa: PLW1509
                **identity(),
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


def _own(path: Path) -> int:
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ServerError(f"{path.parent} is in use by another process.") from None
    return handle


def identity() -> dict[str, Any]:
    """What Popen needs to run a server's program as the right user."""
    if not IS_ROOT:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _die_with(parent: int, number: int) -> None:  # pragma: no cover - between fork and exec
    """In the new process: be stopped when `parent` dies (Linux)."""
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)
