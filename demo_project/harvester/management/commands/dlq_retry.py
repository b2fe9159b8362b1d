"""`manage.py dlq_retry`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from demo_project.harvester.models import retry_dead_letters


class Command(BaseCommand):
    """Pick up dead letters and harvest their sources again."""

    help = "Pick up dead letters and harvest their sources again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="*", help="of distributions; none means all")

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(str(retry_dead_letters(options["names"])))
