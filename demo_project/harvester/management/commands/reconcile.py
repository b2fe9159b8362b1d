"""`manage.py reconcile`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from demo_project.harvester.models import reconcile
from runcontract import RunContractError


class Command(BaseCommand):
    """Enqueue what should be harvested and is not."""

    help = "Enqueue what should be harvested and is not."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--anew", action="store_true", help="harvest everything again")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            done = reconcile(anew=options["anew"])
        except RunContractError as error:
            raise CommandError(f"The origin's index cannot be read: {error}") from error
        self.stdout.write(str(done))
