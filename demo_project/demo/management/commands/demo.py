"""`manage.py demo`."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError
from rich.console import Console

from demo_project.demo.programs import Options
from demo_project.demo.stage import play
from runcontract import RunContractError

WIDTH = 120
"""Characters of a line where no terminal says how many."""


class Command(BaseCommand):
    """Run everything: servers, origin, mail server, web, scheduler and worker."""

    help = "Runs real background work on real servers, and shows it, until Ctrl-C."
    requires_system_checks = "__all__"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--once", action="store_true", help="end when all is done, and check it"
        )
        parser.add_argument("--seed", type=int, default=1, help="of all misbehaviour")
        parser.add_argument("--port", type=int, default=8000, help="of the web pages")
        parser.add_argument("--limit", type=int, help="harvest this many distributions only")
        parser.add_argument("--processes", type=int, default=2, help="of the worker")
        parser.add_argument(
            "--patience", type=float, default=200, help="seconds after which --once gives up"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        chosen = {name: options[name] for name in Options.__dataclass_fields__}
        try:
            code = play(Options(**chosen), _console())
        except RunContractError as error:
            raise CommandError(str(error)) from error
        except OperationalError as error:
            raise CommandError(f"The database cannot be used: {error}") from error
        sys.exit(code)


def _console() -> Console:
    """The terminal, or a stream of lines long enough for the tables."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)
