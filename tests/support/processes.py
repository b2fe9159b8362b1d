"""Real processes of this project: `manage.py` commands on the servers of the running tests."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from django.db import connections

from tests.settings import ROOT

from .wait import eventually

READY = r"\bready\b"
"""What a worker and a scheduler log when they are up."""


class Command:
    """One `manage.py` command, its log and its descendants."""

    def __init__(self, *arguments: str, **options: Any) -> None:
        """`settings`: RUNCONTRACT keys, durations in seconds. `schedules`: see lab/schedules.py.

        `env`: more of the environment.
        """
        self.arguments = arguments
        handle, name = tempfile.mkstemp(prefix="rct-", suffix=".log")
        self.log_file = Path(name)
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=environment(**options),
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.close(handle)

    def __repr__(self) -> str:
        return f"manage.py {' '.join(self.arguments)} (pid {self.pid})"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self.log_file.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def children(self) -> list[int]:
        """The pids of its living child processes, oldest first."""
        return children_of(self.pid)

    def wait_for(self, pattern: str, timeout: float = 20) -> re.Match[str]:
        """The first match of `pattern` in the log; fails at once if the process ends before."""
        try:
            return eventually(lambda: self._found(pattern), timeout)
        except (AssertionError, Ended) as error:
            raise AssertionError(
                f"{self}: no {pattern!r} in its log. {error}\n{self.log}"
            ) from None

    def wait_until_ready(self, timeout: float = 30) -> "Command":
        self.wait_for(READY, timeout)
        return self

    def send(self, number: int) -> None:
        """To the process alone."""
        self.process.send_signal(number)

    def send_to_group(self, number: int) -> None:
        """To the whole process group, as Ctrl-C or a container's stop may do."""
        os.killpg(self.pid, number)

    def pause(self) -> None:
        """Stop the process and its children, as a sleeping machine would."""
        for pid in (self.pid, *self.children()):
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in (*self.children(), self.pid):
            os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9 of the process alone; its children are left to notice by themselves."""
        self.process.kill()
        self.process.wait(10)

    def wait(self, timeout: float = 30) -> int:
        """Its exit code (negative: the signal that ended it)."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} did not end in {timeout} s.\n{self.log}") from None

    def stop(self, *, number: int = signal.SIGTERM, timeout: float = 30, code: int = 0) -> None:
        """Stop it as an operator would; exit code and log must be good and no child left."""
        left = descendants_of(self.pid)
        self.send(number)
        ended = self.wait(timeout)
        assert ended == code, f"{self} ended with {ended}.\n{self.log}"
        assert_no_traceback(self)
        eventually(lambda: not [pid for pid in left if is_alive(pid)], 5)

    def discard(self) -> None:
        """End it and all it has started, whatever the state; called at teardown."""
        pids = [*descendants_of(self.pid), *([self.pid] if self.alive else [])]
        for pid in pids:
            _kill(pid)
        self.process.wait(10)
        self.log_file.unlink(missing_ok=True)

    def _found(self, pattern: str) -> re.Match[str] | None:
        ended = not self.alive
        match = re.search(pattern, self.log)
        if match is None and ended:
            raise Ended(f"It has ended with {self.process.returncode}.")
        return match


class Ended(Exception):
    """The process ended before it said what was waited for."""


def environment(
    *,
    settings: dict[str, Any] | None = None,
    schedules: list[dict[str, Any]] | None = None,
    env: dict[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a process that shares the databases and the Redis of this test."""
    changed = json.loads(os.environ.get("RUNCONTRACT_TEST_SETTINGS", "{}")) | (settings or {})
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONUNBUFFERED": "1",
        "RUNCONTRACT_TEST_DATABASES": json.dumps(
            {alias: connections[alias].settings_dict["NAME"] for alias in connections}
        ),
        "RUNCONTRACT_TEST_SETTINGS": json.dumps(changed),
        "RUNCONTRACT_TEST_SCHEDULES": json.dumps(schedules or []),
        **(env or {}),
    }


def assert_no_traceback(command: Command) -> None:
    """The log holds no traceback of the framework itself."""
    assert "Traceback (most recent call last)" not in command.log, command.log


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not yet waited for does not."""
    return pid in _table()


def children_of(pid: int) -> list[int]:
    """The living children of a process, oldest first."""
    return sorted(child for child, parent in _table().items() if parent == pid)


def descendants_of(pid: int) -> list[int]:
    """All that a process has started, children before grandchildren."""
    table = _table()
    found, next_ones = [], [pid]
    while next_ones:
        next_ones = [child for child, parent in table.items() if parent in next_ones]
        found += next_ones
    return found


def _table() -> dict[int, int]:
    """Each living process's parent."""
    if Path("/proc/self/stat").exists():
        return dict(filter(None, map(_from_proc, Path("/proc").glob("[0-9]*"))))
    lines = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    rows = (line.split() for line in lines)
    return {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}


def _from_proc(folder: Path) -> tuple[int, int] | None:
    try:
        # The name in parentheses may hold anything; what follows does not.
        state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state in "ZX" else (int(folder.name), int(parent))


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
