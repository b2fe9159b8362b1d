"""Keeps processes alive, as a process manager would, and leaves none behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from demo_project.state import CHECKOUT
from runcontract import RunContractError

LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
PR_SET_PDEATHSIG = 1

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""Seconds between a death and the next start; doubled for one that dies young."""
GROWN_UP = 10.0
"""Seconds of life after which a death counts as the first again."""


class Service(Protocol):
    """Something that the keeper starts, watches and stops."""

    name: str

    def start(self) -> None:
        """Start it, again if need be."""

    def ask_to_stop(self) -> None:
        """Ask politely; returns at once."""

    def kill(self) -> None:
        """Ask no more; returns when it is gone."""

    @property
    def pid(self) -> int | None:
        """Its process; None before the first start."""

    @property
    def returncode(self) -> int | None:
        """None while it runs; -9 when signal 9 ended it."""


def children(pid: int) -> list[int]:
    """The processes that this one has started; none where the kernel does not tell."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Program:
    """A child process of ours with a log file. It dies with us, by SIGKILL on Linux."""

    def __init__(
        self, name: str, argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.argv, self.log, self.env = name, argv, log, env
        self._process: subprocess.Popen[bytes] | None = None
        log.write_bytes(b"")

    def start(self) -> None:
        """In a session of its own: a Ctrl-C reaches only us, and we stop things in order."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.argv,
                cwd=CHECKOUT,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_dies_with(os.getpid()),  # noqa: PLW1509
            )

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        if self.returncode is None and self._process:
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL, to its whole process group."""
        if self.returncode is None and self._process:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def pid(self) -> int | None:
        """The process, the last one if it is dead."""
        return self._process.pid if self._process else None

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process else 0


def _dies_with(parent: int) -> Callable[[], None]:
    """What a new child does first. Only the thread that forked counts as parent: the main one."""

    def bind() -> None:
        if LIBC:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return bind


class Kept:
    """One service under the keeper's eye."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.restarts = 0
        self._started = 0.0
        self._pause = SHORTEST_PAUSE
        self._due: float | None = None

    def start(self) -> None:
        """Start it now."""
        self._started, self._due = time.monotonic(), None
        self.service.start()

    def tend(self) -> str:
        """Start it again when it is dead and its pause is over; what there is to tell."""
        code = self.service.returncode
        if code is None:
            return ""
        now = time.monotonic()
        if self._due is None:
            young = now - self._started < GROWN_UP
            self._pause = min(2 * self._pause, LONGEST_PAUSE) if young else SHORTEST_PAUSE
            self._due = now + self._pause
            died = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            return f"{self.service.name} {died}; it is started again in {self._pause:.1f} s"
        if now >= self._due:
            self.restarts += 1
            self.start()
            return f"{self.service.name} is started again, pid {self.service.pid}"
        return ""


class Keeper:
    """Starts services in order, starts again what dies, and stops them in the opposite order."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.kept: list[Kept] = []
        self.hurry = False
        """Set it, from a signal handler for one, to stop asking politely."""
        self._say = say

    def add(self, service: Service) -> None:
        """Start it and keep it running."""
        kept = Kept(service)
        self.kept.append(kept)
        kept.start()

    def tend(self) -> None:
        """One look at everything; call it often."""
        for kept in self.kept:
            try:
                news = kept.tend()
            except (OSError, RunContractError) as error:
                news = f"{kept.service.name} does not start: {error}"
            if news:
                self._say(news)

    def stop(self, grace: float = 15.0, leave: int = 0) -> None:
        """Stop everything, what was started last first; `grace` seconds each, then SIGKILL.

        The first `leave` are left running.
        """
        for kept in reversed(self.kept[leave:]):
            service = kept.service
            service.ask_to_stop()
            end = time.monotonic() + grace
            while service.returncode is None and time.monotonic() < end and not self.hurry:
                time.sleep(0.02)
            service.kill()
        del self.kept[leave:]
