"""The whole demo, as a newcomer starts it, on servers of its own."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import redis

from demo_project.demo.story import STEPS
from demo_project.origin import OUTAGE, Act, deal, installed
from demo_project.state import CHECKOUT
from tests.support.processes import children_of, descendants_of, is_alive
from tests.support.wait import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

SEED = 4


class Demo:
    """`manage.py demo`, with a state directory and servers of its own."""

    def __init__(self, state: Path, *arguments: str) -> None:
        self.state, self.log = state, state / "demo.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "demo", *arguments],
                cwd=CHECKOUT,
                env=environment(state),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait_for(self, pattern: str, timeout: float = 90) -> None:
        """Until the demo has said this."""

        def said() -> bool:
            assert self.process.poll() is None or re.search(pattern, self.output), self.output
            return bool(re.search(pattern, self.output))

        eventually(said, timeout)

    def pid(self, name: str = "runworker") -> int:
        """The process with this in its command line, by default the worker's supervisor."""
        return next(pid for pid in children_of(self.process.pid) if name in command(pid))


def environment(state: Path) -> dict[str, str]:
    others = {"DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE"}
    return {key: value for key, value in os.environ.items() if key not in others} | {
        "STATE_DIR": str(state)
    }


def gone(pids: list[int]) -> bool:
    return not any(map(is_alive, pids))


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


@pytest.fixture
def start() -> Iterator[Callable[..., Demo]]:
    state = Path(tempfile.mkdtemp(prefix="rct-demo-"))
    started: list[Demo] = []

    def starter(*arguments: str) -> Demo:
        started.append(Demo(state, *arguments))
        return started[-1]

    yield starter
    for demo in started:
        left = descendants_of(demo.process.pid)
        demo.process.kill()
        demo.process.wait(10)
        eventually(partial(gone, left))
    shutil.rmtree(state)


def test_once_ends_well_although_a_worker_is_killed_and_valkey_flushed(
    start: Callable[..., Demo],
) -> None:
    demo = start("--once", "--limit", "15", "--seed", str(SEED))
    demo.wait_for("15 enqueued")
    with redis.Redis.from_url(f"unix://{demo.state / 'valkey' / 'sock'}") as client:
        client.flushall()
    os.kill(eventually(lambda: children_of(demo.pid()))[0], signal.SIGKILL)
    os.kill(demo.pid("demo_project.smtp"), signal.SIGKILL)
    assert demo.process.wait(200) == 0, demo.output
    assert demo.output.count("holds  ") == 10
    assert "smtp is started again" in demo.output
    dead = re.findall(r"^  (\S+) +(?:permanent|exhausted) ", demo.output, re.MULTILINE)
    characters = deal(installed(15), SEED)
    assert dead == sorted(
        name
        for name, character in characters.items()
        if character.then in (Act.NOT_FOUND, Act.MALFORMED)
    )
    assert OUTAGE in characters.values()  # which dlq_retry has saved
    for step in STEPS:
        assert re.search(rf"^\S+ {step}: ", demo.output, re.MULTILINE), step
    for words in ("The planner does not", "there is no", "budget of 1 steps", "550 5.1.1"):
        assert words in demo.output


def test_second_demo_is_refused_and_sigterm_leaves_nothing(start: Callable[..., Demo]) -> None:
    demo = start("--limit", "3", "--port", "0")
    demo.wait_for("3 enqueued")
    second = start()
    assert second.process.wait(60) == 1
    assert f"already runs in this checkout (pid {demo.process.pid})" in second.output
    left = descendants_of(demo.process.pid)
    assert len(left) >= 6
    demo.process.terminate()
    assert demo.process.wait(60) == 0, demo.output
    assert gone(left)
    assert demo.output.endswith("stopped: nothing is left running\n")


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_kill_of_the_demo_leaves_nothing_and_the_next_one_goes_on(
    start: Callable[..., Demo],
) -> None:
    demo = start("--limit", "12", "--seed", str(SEED))
    demo.wait_for("12 enqueued")
    left = descendants_of(demo.process.pid)
    demo.process.kill()
    eventually(partial(gone, left))
    again = start("--limit", "12", "--seed", str(SEED))
    again.wait_for("reconcile: 12 listed, 0 enqueued")
