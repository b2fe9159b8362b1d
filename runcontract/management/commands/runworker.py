"""`manage.py runworker [lane …]`: take runs and perform them."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ...conf import settings
from ...logs import log_to_terminal
from ...registry import run_models
from ...transport import eviction_warning, lanes, server_of
from ...worker.child import ChildOptions
from ...worker.supervisor import Supervisor


class Command(BaseCommand):
    """Takes runs from lanes and performs them in child processes.

    SIGTERM or SIGINT once drains: nothing more is taken, and what does not end within the drain
    timeout is given back without spending an attempt. Twice does not wait.
    """

    help = "Take runs from the given lanes (all by default, in order of priority) and perform them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("lanes", nargs="*", metavar="lane", help="in order of priority")
        parser.add_argument("--processes", type=int, default=1, help="child processes (1)")
        parser.add_argument("--burst", action="store_true", help="empty the lanes and exit")
        parser.add_argument("--drain-timeout", type=float, metavar="SECONDS")
        parser.add_argument("--max-runs", type=int, help="replace a child after so many runs")
        parser.add_argument("--max-memory", type=int, metavar="MIB", help="replace a bigger child")

    def handle(self, *args: Any, **options: Any) -> None:
        log_to_terminal(options["verbosity"])
        names = _checked_lanes(options["lanes"])
        for option in ("processes", "max_runs", "max_memory"):
            if options[option] is not None and options[option] < 1:
                raise CommandError(f"--{option.replace('_', '-')} must be at least 1.")
        wait = options["drain_timeout"]
        if wait is None:
            wait = settings().DRAIN_TIMEOUT.total_seconds()
        warning = eviction_warning(names[0])
        if warning:
            self.stderr.write(self.style.WARNING(warning))
        logging.getLogger("runcontract.worker").info(
            "Worker: lanes %s, %d processes, %d run models.",
            ", ".join(names),
            options["processes"],
            len(run_models()),
        )
        children = ChildOptions(names, options["burst"], options["max_runs"], options["max_memory"])
        sys.exit(Supervisor(children, options["processes"], wait).run())


def _checked_lanes(wanted: list[str]) -> list[str]:
    names = list(dict.fromkeys(wanted)) or lanes()
    unknown = [name for name in names if name not in lanes()]
    if unknown:
        known = ", ".join(lanes()) or "none"
        raise CommandError(f"There is no lane {unknown[0]!r} in RQ_QUEUES; it has {known}.")
    if not names:
        raise CommandError("RQ_QUEUES names no lane; add at least one.")
    if len({server_of(name) for name in names}) > 1:
        raise CommandError("These lanes are on different Redis servers; start a worker for each.")
    return names
