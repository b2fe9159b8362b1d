"""The demo's place on this machine: one demo a checkout, free ports, a word for other terminals."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runcontract import RunContractError


class DemoError(RunContractError):
    """The demo cannot go on; the sentence says why."""


@contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Only one demo in this state directory; the lock falls with the process."""
    with (state / "demo.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise DemoError(
                f"A demo already runs in this checkout (pid {lock.read()}); stop it first."
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def free_port(wanted: int) -> int:
    """This port of 127.0.0.1, or another one when it is taken."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise DemoError("No port of 127.0.0.1 is free.")


def wait_for_port(port: int, patience: float = 60.0) -> None:
    """Until somebody listens there."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise DemoError(f"Nothing listens on port {port}; the logs in the state directory say why.")


def tell_others(state: Path, values: dict[str, str]) -> None:
    """Settings of this demo that `manage.py` in another terminal reads."""
    part = state / "demo.env.part"
    part.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    part.replace(state / "demo.env")
