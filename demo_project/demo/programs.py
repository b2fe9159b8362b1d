"""The processes of a story: origin, mail server, web, scheduler and worker."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from demo_project.smtp import readers
from demo_project.state import CHECKOUT

from .places import DemoError, free_port, tell_others, wait_for_port
from .processes import Keeper, Program

JOURNAL = "mail.journal"
"""Where the mail server notes each try, in the state directory."""


@dataclass(frozen=True)
class Options:
    """What the command line said."""

    seed: int
    limit: int | None
    processes: int
    patience: float
    """Seconds after which a story that should end is given up."""
    once: bool = False
    port: int | None = None
    """Of the web pages; None for none."""


class Programs:
    """Starts them under a keeper's eye, in one environment."""

    def __init__(self, keeper: Keeper, state: Path, options: Options) -> None:
        self.keeper, self.state, self.options = keeper, state, options
        self.env = dict(os.environ, PYTHONUNBUFFERED="1")

    def start(self) -> str:
        """Start all; the address of the web pages, empty for none."""
        origin, mail = free_port(0), free_port(0)
        places = {
            "ORIGIN_URL": f"http://127.0.0.1:{origin}",
            "EMAIL_HOST": "127.0.0.1",
            "EMAIL_PORT": str(mail),
            "DIGEST_READERS": ",".join(readers(self.options.seed)),
        }
        self.env |= places
        tell_others(self.state, places)
        seed = ["--seed", str(self.options.seed)]
        limit = [] if self.options.limit is None else ["--limit", str(self.options.limit)]
        self._keep("origin", "-m", "demo_project.origin", "--port", str(origin), *seed, *limit)
        journal = ["--journal", str(self.state / JOURNAL)]
        self._keep("smtp", "-m", "demo_project.smtp", "--port", str(mail), *seed, *journal)
        address = self._start_web()
        self._keep("scheduler", "manage.py", "runscheduler")
        count = str(self.options.processes)
        self._keep("worker", "manage.py", "runworker", *settings.LANES, "--processes", count)
        for port in (origin, mail):
            wait_for_port(port)
        return address

    def manage(self, *arguments: str) -> str:
        """What a management command says. Raises DemoError when it fails."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            check=False,
            cwd=CHECKOUT,
            env=self.env,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise DemoError(f"manage.py {arguments[0]} failed: {done.stderr.strip()[-2000:]}")
        return done.stdout.strip()

    def _start_web(self) -> str:
        if self.options.port is None:
            return ""
        address = f"127.0.0.1:{free_port(self.options.port)}"
        self._keep("web", "manage.py", "runserver", "--noreload", "--insecure", address)
        return f"http://{address}"

    def _keep(self, name: str, *arguments: str) -> None:
        log = self.state / f"{name}.log"
        self.keeper.add(Program(name, [sys.executable, *arguments], log, self.env))
