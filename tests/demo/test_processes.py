"""The keeper: what dies is started again, and nothing is left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo_project.demo import processes
from demo_project.demo.processes import Keeper, Program
from demo_project.state import CHECKOUT
from tests.support.processes import children_of, is_alive
from tests.support.wait import eventually

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True);"
    " time.sleep(600)",
]
KEEPING = f"""
import sys, time
from pathlib import Path
from demo_project.demo.processes import Keeper, Program
keeper = Keeper(print)
for name in ("one", "two"):
    keeper.add(Program(name, {SLEEPER!r}, Path(sys.argv[1], name)))
time.sleep(600)
"""


@pytest.fixture
def news() -> list[str]:
    return []


@pytest.fixture
def keeper(news: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    monkeypatch.setattr(processes, "SHORTEST_PAUSE", 0.05)
    keeper = Keeper(news.append)
    yield keeper
    keeper.hurry = True
    keeper.stop()


@pytest.fixture
def add(keeper: Keeper, tmp_path: Path) -> Callable[[list[str]], Program]:
    def adder(argv: list[str]) -> Program:
        program = Program("thing", argv, tmp_path / "thing.log")
        keeper.add(program)
        return program

    return adder


def test_killed_program_is_started_again_and_told(
    keeper: Keeper, news: list[str], add: Callable[[list[str]], Program]
) -> None:
    program = add(SLEEPER)
    first = program.pid
    assert first
    os.kill(first, signal.SIGKILL)

    def again() -> bool:
        keeper.tend()
        return program.returncode is None and program.pid != first

    eventually(again)
    assert keeper.kept[0].restarts == 1
    assert news[0].startswith("thing was killed by signal 9; it is started again in")
    assert news[1] == f"thing is started again, pid {program.pid}"


def test_program_that_dies_young_waits_longer_each_time(
    keeper: Keeper, news: list[str], add: Callable[[list[str]], Program]
) -> None:
    add([sys.executable, "-c", "raise SystemExit(3)"])

    def died_three_times() -> bool:
        keeper.tend()
        return sum("ended with exit code 3" in line for line in news) == 3

    eventually(died_three_times)
    pauses = [float(line.split()[-2]) for line in news if "exit code 3" in line]
    assert pauses == sorted(set(pauses))


def test_stop_ends_everything_last_first(keeper: Keeper, tmp_path: Path) -> None:
    order = [Program(name, SLEEPER, tmp_path / name) for name in ("first", "second")]
    for program in order:
        keeper.add(program)
    keeper.stop()
    assert [program.returncode for program in order] == [-signal.SIGTERM] * 2


def test_program_that_is_deaf_to_sigterm_is_killed_after_its_grace(
    keeper: Keeper, add: Callable[[list[str]], Program]
) -> None:
    program = add(STUBBORN)
    eventually(lambda: "deaf" in program.log.read_text())
    keeper.stop(grace=0.2)
    assert program.returncode == -signal.SIGKILL


def test_hurry_waits_for_nothing(keeper: Keeper, add: Callable[[list[str]], Program]) -> None:
    program = add(STUBBORN)
    eventually(lambda: "deaf" in program.log.read_text())
    keeper.hurry = True
    keeper.stop(grace=600)
    assert program.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_kill_of_the_keeper_leaves_no_process(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", KEEPING, str(tmp_path)],
        cwd=CHECKOUT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
    )
    try:
        pids = eventually(lambda: two if len(two := children_of(parent.pid)) == 2 else [])
    finally:
        parent.kill()
        parent.wait(10)
    eventually(lambda: not any(map(is_alive, pids)))
