"""`manage.py runscheduler`: cron, sweep, reap, release, prune."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ...conf import settings
from ...lifecycle.database import limit_waiting
from ...logs import log_to_terminal
from ...scheduler.loop import Scheduler
from ...transport import eviction_warning, one_lane_per_server


class Command(BaseCommand):
    """The singleton. A second copy stands by and takes over within the lease's time."""

    help = "Tick cron, send what was not sent, reap silent runs, release and prune."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="make one pass and exit")

    def handle(self, *args: Any, **options: Any) -> None:
        log_to_terminal(options["verbosity"])
        settings()
        limit_waiting()
        for warning in map(eviction_warning, one_lane_per_server()):
            if warning:
                self.stderr.write(self.style.WARNING(warning))
        scheduler = Scheduler()
        sys.exit(scheduler.once() if options["once"] else scheduler.run())
