"""`manage.py demo_chaos`."""

import os
import shutil
import sys
import tempfile
from argparse import SUPPRESS
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console

from demo_project.demo.chaos import Told, blows, tell
from demo_project.demo.ends import stopped_by_signals
from demo_project.demo.programs import Options
from demo_project.demo.progress import Progress
from demo_project.demo.stage import Stage
from runcontract import RunContractError

SECOND = "0.3"
"""What a second of the demo's settings takes here."""


class Command(BaseCommand):
    """Tell the story again and again, each time with a kill or a flush at some moment."""

    help = (
        "Strikes stories by a kill -9 of a worker process or by a FLUSHALL, each at a moment picked"
        " by the seed, and compares their ends with that of an undisturbed one. On servers and in"
        " a temporary directory of its own."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--moments", type=int, default=20, help="how many")
        parser.add_argument("--seed", type=int, default=1, help="of moments and misbehaviour")
        parser.add_argument("--limit", type=int, help="harvest this many distributions only")
        parser.add_argument("--processes", type=int, default=2, help="of the worker")
        parser.add_argument("--patience", type=float, default=120, help="seconds for one story")
        parser.add_argument("--state", type=Path, help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["state"] is None:
            _start_again_in(tempfile.mkdtemp(prefix="chaos-"))
        names = ("seed", "limit", "processes", "patience")
        chosen = Options(**{name: options[name] for name in names})
        try:
            with Progress(Console(soft_wrap=True)) as progress:
                wrong = play(chosen, options["moments"], progress)
        except KeyboardInterrupt:
            sys.exit(130)
        except RunContractError as error:
            raise CommandError(str(error)) from error
        finally:
            shutil.rmtree(options["state"], ignore_errors=True)
        sys.exit(1 if wrong else 0)


def _start_again_in(state: str) -> None:
    """This command with quick settings, and with servers that are nobody else's."""
    others = {"DATABASE_URL", "REDIS_URL"}
    env = {name: value for name, value in os.environ.items() if name not in others}
    env |= {"STATE_DIR": state, "DEMO_SECOND": SECOND}
    os.execve(sys.executable, [sys.executable, *sys.argv, "--state", state], env)  # noqa: S606


def play(options: Options, moments: int, progress: Progress) -> int:
    """An undisturbed story and those that are struck; how many did not end like it."""
    stage, wrong, twice = Stage(options, progress), 0, 0
    with stopped_by_signals(stage.keeper):
        try:
            stage.open()
            calm = tell(stage)
            progress.say(f"undisturbed: {describe(calm)}")
            for number, blow in enumerate(blows(moments, options.seed, calm.runs), start=1):
                told = tell(stage, blow)
                against = [*told.against, *calm.ending.differences(told.ending)]
                wrong += bool(against)
                twice += told.twice
                end = f"DIFFERS: {against}" if against else "the same end"
                progress.say(f"{number} of {moments}, {blow}: {end}; {describe(told)}")
        finally:
            stage.close()
    same = "all end as the undisturbed one" if not wrong else f"{wrong} DO NOT end as it should be"
    progress.say(f"{moments} moments: {same}; {twice} mails went out twice, accepted before a kill")
    return wrong


def describe(told: Told) -> str:
    """`12.3 s, 50 runs, 1 lost, 40 edges, 20 mails (1 of them twice), 2 dead letters …`."""
    end = told.ending
    again = f" ({told.twice} of them twice)" if told.twice else ""
    figures = f"{told.seconds:.1f} s, {told.runs} runs, {told.lost} lost"
    return (
        f"{figures}, {len(end.graph['edges'])} edges, {len(end.delivered)} mails{again},"
        f" {len(end.dead_letters)} dead letters, {len(end.answers)} answers"
    )
