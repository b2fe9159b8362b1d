"""The demo from its first process to its last."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Never

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.urls import reverse
from rich.console import Console

from demo_project.origin import installed
from demo_project.smtp import accepted
from demo_project.state import directory

from . import checks, story, witness
from .counts import Meter, Snapshot, database_time
from .ends import DONE, FAILED, INTERRUPTED, STOPPED, End, stopped_by_signals
from .models import Story
from .places import only_one
from .processes import Keeper
from .programs import JOURNAL, Options, Programs
from .progress import Progress
from .servers import embedded
from .summary import summary

LOOK = 0.3
"""Seconds between two looks at everything."""

USER = "demo"

FAILURE_PAGE = "admin:runcontract_failure_changelist"


def play(options: Options, console: Console) -> int:
    """The whole demo; its exit code."""
    with only_one(directory()), Progress(console) as progress:
        stage = Stage(options, progress)
        with stopped_by_signals(stage.keeper):
            try:
                stage.open()
                stage.begin()
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
        self.programs = Programs(self.keeper, self.state, options)
        self.footer = ""
        self.meter: Meter
        self.story: Story
        here = installed(options.limit)
        self.versions = {name: metadata["version"] for name, metadata in here.items()}
        self.snapshot: Snapshot | None = None

    def open(self) -> None:
        """Start the servers, and make the tables."""
        self.progress.say(f"starting; data and logs are in {self.state}")
        for server in embedded(self.state):
            self.keeper.add(server)
        call_command("migrate", verbosity=0, interactive=False)
        witness.install()

    def begin(self) -> None:
        """Start everything else and ask for the harvests, or go on where a demo was cut."""
        cut = story.newest() if Meter(database_time()).read().active else None
        self.story = cut or story.begin(self.options.seed)
        self.meter = Meter(self.story.began)
        address = self.programs.start()
        if address:
            self._greet(address)
        ask = [] if cut else ["--anew"]
        self.progress.say(self.programs.manage("reconcile", *ask))

    def stay(self) -> Never:
        """Until a signal comes."""
        while True:
            self.look()
            time.sleep(LOOK)

    def perform_once(self) -> End:
        """Until the story is over; then look whether every check holds."""
        end = time.monotonic() + self.options.patience
        while not self.look():
            if time.monotonic() > end:
                self.progress.say(f"not done after {self.options.patience:.0f} s")
                break
            time.sleep(LOOK)
        found = self.check()
        self.progress.close()
        summary(self.progress.console, self.story, self.meter.read(), found)
        return DONE if all(check.holds for check in found) else FAILED

    def check(self) -> list[checks.Check]:
        """What holds now, and what does not."""
        told = [] if story.is_over(self.story) else [f"it stands after {[*self.story.told]}"]
        end = checks.Check("the story was told to its end", tuple(told))
        mails = accepted(self.state / JOURNAL)
        return [end, *checks.everything(self.story.began, self.versions, mails)]

    def look(self) -> bool:
        """Tend the processes, go on with the story, show the figures; whether all is over."""
        self.keeper.tend()
        try:
            for news in story.go_on(self.story):
                self.progress.say(news)
            snapshot = self.meter.read()
        except DatabaseError as error:
            connection.close()
            if self.snapshot:
                self.progress.say(f"the database does not answer: {error}".splitlines()[0])
            self.snapshot = None
            return False
        self.snapshot = snapshot
        self.progress.show(snapshot, self.keeper.kept, self.footer)
        return story.is_over(self.story) and not snapshot.active

    def close(self) -> None:
        """Stop everything."""
        connection.close()
        self.keeper.stop()

    def _greet(self, address: str) -> None:
        password = secrets.token_urlsafe(9)
        user, _ = get_user_model().objects.get_or_create(
            username=USER, defaults={"is_staff": True, "is_superuser": True}
        )
        user.set_password(password)
        user.save()
        self.footer = (
            f"the story [bold]{address}/[/]   failure page {address}{reverse(FAILURE_PAGE)}\n"
            f"user [bold]{USER}[/]  password [bold]{password}[/]"
            f"   queues {address}/django-rq/   logs {self.state}/*.log\n"
            "kill -9 whatever you like; elsewhere: manage.py dlq_retry, manage.py reconcile --anew;"
            " Ctrl-C stops everything"
        )
        self.progress.announce(self.footer)
