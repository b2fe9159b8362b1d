"""The demo from its first process to its last."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Never

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.urls import reverse
from rich.console import Console

from demo_project.origin import installed
from demo_project.state import CHECKOUT, directory
from demo_project.urls import FAILURE_PAGE

from . import checks, witness
from .counts import Meter, Snapshot, database_time
from .ends import DONE, FAILED, INTERRUPTED, STOPPED, End, stopped_by_signals
from .places import DemoError, free_port, only_one, tell_others, wait_for_port
from .processes import Keeper, Program
from .progress import Progress, summary
from .servers import embedded

LOOK = 0.3
"""Seconds between two looks at everything."""

USER = "demo"


@dataclass(frozen=True)
class Options:
    """What the command line said."""

    once: bool
    seed: int
    port: int
    limit: int | None
    processes: int
    patience: float
    """Seconds after which `once` ends, done or not."""


def play(options: Options, console: Console) -> int:
    """The whole demo; its exit code."""
    with only_one(directory()), Progress(console) as progress:
        stage = Stage(options, progress)
        with stopped_by_signals(stage.keeper):
            try:
                stage.open()
                end = stage.perform_once() if options.once else stage.stay()
            except KeyboardInterrupt:
                end = INTERRUPTED if options.once else STOPPED
            finally:
                progress.say("stopping; a second Ctrl-C waits for nothing")
                stage.close()
        progress.say(f"stopped: {end.words}")
        return end.code


class Stage:
    """What runs, and who watches it."""

    def __init__(self, options: Options, progress: Progress) -> None:
        self.options, self.progress = options, progress
        self.keeper = Keeper(say=progress.say)
        self.state: Path = directory()
        self.env = dict(os.environ, PYTHONUNBUFFERED="1")
        self.footer = ""
        self.meter: Meter
        here = installed(options.limit)
        self.versions = {name: metadata["version"] for name, metadata in here.items()}
        self._snapshot: Snapshot | None = None

    def open(self) -> None:
        """Start everything and ask for the harvests."""
        self.progress.say(f"starting; data and logs are in {self.state}")
        for server in embedded(self.state):
            self.keeper.add(server)
        call_command("migrate", verbosity=0, interactive=False)
        witness.install()
        self.meter = Meter(since=database_time())
        self._start_programs()
        ask = [] if self.meter.read().active else ["--anew"]  # else go on where a demo was cut
        self.progress.say(self._manage("reconcile", *ask))

    def stay(self) -> Never:
        """Until a signal comes."""
        while True:
            self.look()
            time.sleep(LOOK)

    def perform_once(self) -> End:
        """Until nothing is active; then look whether every check holds."""
        end = time.monotonic() + self.options.patience
        while (snapshot := self.look()) is None or snapshot.active:
            if time.monotonic() > end:
                self.progress.say(f"not done after {self.options.patience:.0f} s")
                break
            time.sleep(LOOK)
        found = checks.everything(self.meter.since, self.versions)
        self.progress.close()
        summary(self.progress.console, self.meter.read(), found)
        return DONE if all(check.holds for check in found) else FAILED

    def look(self) -> Snapshot | None:
        """Tend the processes and show the figures; None while the database does not answer."""
        self.keeper.tend()
        try:
            snapshot = self.meter.read()
        except DatabaseError as error:
            connection.close()
            if self._snapshot:
                self.progress.say(f"the database does not answer: {error}".splitlines()[0])
            self._snapshot = None
            return None
        self._snapshot = snapshot
        self.progress.show(snapshot, self.keeper.kept, self.footer)
        return snapshot

    def close(self) -> None:
        """Stop everything."""
        connection.close()
        self.keeper.stop()

    def _start_programs(self) -> None:
        origin, web = free_port(0), free_port(self.options.port)
        self.env["ORIGIN_URL"] = f"http://127.0.0.1:{origin}"
        tell_others(self.state, {"ORIGIN_URL": self.env["ORIGIN_URL"]})
        chosen = ["--port", str(origin), "--seed", str(self.options.seed)]
        if self.options.limit is not None:
            chosen += ["--limit", str(self.options.limit)]
        self._keep("origin", "-m", "demo_project.origin", *chosen)
        address = f"127.0.0.1:{web}"
        self._keep("web", "manage.py", "runserver", "--noreload", "--insecure", address)
        self._keep("scheduler", "manage.py", "runscheduler")
        count = str(self.options.processes)
        self._keep("worker", "manage.py", "runworker", *settings.LANES, "--processes", count)
        self._greet(f"http://{address}")
        wait_for_port(origin)

    def _keep(self, name: str, *arguments: str) -> None:
        log = self.state / f"{name}.log"
        self.keeper.add(Program(name, [sys.executable, *arguments], log, self.env))

    def _manage(self, *arguments: str) -> str:
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

    def _greet(self, address: str) -> None:
        password = secrets.token_urlsafe(9)
        user, _ = get_user_model().objects.get_or_create(
            username=USER, defaults={"is_staff": True, "is_superuser": True}
        )
        user.set_password(password)
        user.save()
        self.footer = (
            f"failure page [bold]{address}{reverse(FAILURE_PAGE)}[/]"
            f"  user [bold]{USER}[/]  password [bold]{password}[/]\n"
            f"queues {address}/django-rq/   logs {self.state}/*.log\n"
            "kill -9 whatever you like; elsewhere: manage.py dlq_retry, manage.py reconcile --anew;"
            " Ctrl-C stops everything"
        )
        self.progress.announce(self.footer)
