"""Orders reach the perform that they name, and nothing else."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from runcontract.exceptions import RunCancelled, RunInterrupted, RunTimedOut
from runcontract.worker.interrupts import NEWS, Interrupts
from runcontract.worker.reports import STOP, Hold, Order, encode_order

MINE, OTHER = Hold("lab.mailrun", 1, 1), Hold("lab.mailrun", 1, 2)


class Supervisor:
    """The other end of the pipe."""

    def __init__(self) -> None:
        out, self.into = os.pipe()
        self.interrupts = Interrupts(out)
        self.interrupts.install()

    def order(self, order: Order, hold: Hold = MINE, *, news: bool = True) -> None:
        os.write(self.into, encode_order(order, hold))
        if news:
            os.kill(os.getpid(), NEWS)

    def stop(self) -> None:
        os.write(self.into, STOP)


@pytest.fixture
def boss() -> Iterator[Supervisor]:
    boss = Supervisor()
    yield boss
    os.close(boss.into)
    os.close(boss.interrupts._reader.descriptor)


@pytest.mark.parametrize(
    ("order", "raised"),
    [
        (Order.CANCEL, RunCancelled),
        (Order.TIMEOUT, RunTimedOut),
        (Order.GIVE_UP, RunInterrupted),
    ],
)
def test_order_is_raised_inside_the_window_it_names(boss, order, raised) -> None:
    with pytest.raises(raised), boss.interrupts.window(MINE):
        boss.order(order)
        pytest.fail("not reached")


def test_order_for_another_lease_of_the_run_is_not_raised(boss) -> None:
    with boss.interrupts.window(MINE):
        boss.order(Order.GIVE_UP, OTHER)
    assert boss.interrupts.order_for(MINE) is None


def test_nothing_is_raised_outside_the_window(boss) -> None:
    boss.order(Order.CANCEL)
    with boss.interrupts.window(OTHER):
        pass
    boss.order(Order.CANCEL)


def test_order_that_came_before_the_window_is_raised_at_its_opening(boss) -> None:
    boss.order(Order.GIVE_UP, news=False)
    with pytest.raises(RunInterrupted), boss.interrupts.window(MINE):
        pytest.fail("not reached")


def test_timeout_of_one_attempt_does_not_hit_the_next(boss) -> None:
    with pytest.raises(RunTimedOut), boss.interrupts.window(MINE):
        boss.order(Order.TIMEOUT)
    boss.order(Order.TIMEOUT, news=False)
    with boss.interrupts.window(MINE):
        pass


def test_cancel_holds_for_every_attempt_of_the_claim(boss) -> None:
    for _ in range(2):
        boss.order(Order.CANCEL, news=False)
        with pytest.raises(RunCancelled), boss.interrupts.window(MINE):
            pytest.fail("not reached")


def test_swallowed_interrupt_is_not_raised_twice(boss) -> None:
    with boss.interrupts.window(MINE):
        try:
            boss.order(Order.GIVE_UP)
        except RunInterrupted:
            os.kill(os.getpid(), NEWS)
    assert boss.interrupts.order_for(MINE) is Order.GIVE_UP


def test_code_that_asks_gets_the_order_as_an_exception(boss) -> None:
    boss.interrupts.raise_for(MINE)
    boss.order(Order.CANCEL)
    with pytest.raises(RunCancelled):
        boss.interrupts.raise_for(MINE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_signal_only_takes_a_note(boss, number) -> None:
    assert not boss.interrupts.stopping
    with boss.interrupts.window(MINE):
        os.kill(os.getpid(), number)
    assert boss.interrupts.stopping


def test_stop_over_the_pipe_needs_no_signal(boss) -> None:
    boss.stop()
    assert boss.interrupts.stopping


def test_stop_or_order_ends_a_pause_and_a_late_timeout_does_not(boss) -> None:
    boss.order(Order.TIMEOUT)
    assert boss.interrupts.pause(MINE, 0.2) == 0
    boss.order(Order.CANCEL)
    assert boss.interrupts.pause(MINE, 60) > 59
    boss.stop()
    assert boss.interrupts.pause(OTHER, 60) > 59
    assert not boss.interrupts.sleep(60)


def test_sleep_ends_by_itself(boss) -> None:
    assert boss.interrupts.sleep(0.15)


def test_handlers_and_alarm_of_a_job_end_with_it(boss) -> None:
    with boss.interrupts.window(MINE):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(NEWS, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, NEWS})
        signal.setitimer(signal.ITIMER_REAL, 60)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    os.kill(os.getpid(), signal.SIGTERM)
    assert boss.interrupts.stopping
    for harmless in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2):
        os.kill(os.getpid(), harmless)


def test_coroutine_is_cancelled_wherever_the_order_falls(boss) -> None:
    """Before the task is known nothing is raised: the coroutine's thread would go on alone."""
    seen = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        boss.interrupts.watch_task(asyncio.get_running_loop(), task)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    def loop() -> None:
        try:
            asyncio.run(work())
        except asyncio.CancelledError:
            seen.append("ended")

    with boss.interrupts.window(MINE, raising=False):
        boss.order(Order.GIVE_UP)
        thread = threading.Thread(target=loop)
        thread.start()
        thread.join(10)
        assert seen == ["cancelled", "ended"]
        os.kill(os.getpid(), NEWS)  # its loop has ended, and that is no error
    with pytest.raises(RunInterrupted):
        boss.interrupts.raise_for(MINE)


def test_forked_process_dies_of_the_signals_that_the_child_survives() -> None:
    """In a child of its own, for hooks at fork are for good."""
    pid = os.fork()
    if pid == 0:
        boss = Supervisor()
        boss.interrupts.end_at_fork()
        codes = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            grandchild = os.fork()
            if grandchild == 0:
                time.sleep(20)
                os._exit(0)
            os.kill(grandchild, number)
            codes.append(os.WTERMSIG(os.waitpid(grandchild, 0)[1]) == number)
        boss.stop()
        codes.append(boss.interrupts.stopping)
        os._exit(0 if all(codes) else 1)
    assert os.waitpid(pid, 0)[1] == 0
