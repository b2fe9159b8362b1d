"""Foreign code is stopped in time, and nobody else's alarm is lost."""

import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from runcontract.contract.guard import Overdue, Patience, guarded


class Rung(BaseException):
    """The alarm of somebody else."""


@pytest.fixture
def alarm() -> Iterator[None]:
    """A SIGALRM handler that raises Rung; pytest-timeout's own is put back afterwards."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Rung

    before = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    signal.signal(signal.SIGALRM, before)
    signal.setitimer(signal.ITIMER_REAL, *timer)


def wait_forever() -> str:
    threading.Event().wait(30)
    return "came back"


def class_of(error: BaseException) -> str:
    return type(error).__name__


def test_what_the_call_returns_comes_back() -> None:
    assert guarded(lambda: 3, lambda error: 0, 1.0) == 3


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_whatever_it_raises_is_an_answer(error: type[BaseException]) -> None:
    def fail() -> str:
        raise error

    assert guarded(fail, class_of, 1.0) == error.__name__


def test_a_call_that_does_not_end_is_stopped() -> None:
    started = time.monotonic()
    assert guarded(wait_forever, class_of, 0.05) == "Overdue"
    assert time.monotonic() - started < 5


def test_a_call_that_swallows_the_first_alarm_is_stopped_by_the_next() -> None:
    def stubborn() -> str:
        try:
            wait_forever()
        except Overdue:
            wait_forever()
        return "came back"

    assert guarded(stubborn, class_of, 0.05) == "Overdue"


def test_an_inner_guard_leaves_the_outer_one_its_time() -> None:
    def outer() -> str:
        guarded(wait_forever, class_of, 0.05)
        return wait_forever()

    started = time.monotonic()
    assert guarded(outer, class_of, 0.3) == "Overdue"
    assert 0.25 < time.monotonic() - started < 5


def test_anothers_timer_goes_on_with_the_rest_of_its_time(alarm: None) -> None:
    signal.setitimer(signal.ITIMER_REAL, 20, 7)
    guarded(wait_forever, class_of, 0.1)
    left, period = signal.getitimer(signal.ITIMER_REAL)
    assert 10 < left <= 19.9
    assert period == 7


def test_anothers_timer_that_was_due_meanwhile_rings_at_once(alarm: None) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    assert guarded(wait_forever, class_of, 0.1) == "Overdue"
    with pytest.raises(Rung):
        wait_forever()


def test_without_anothers_timer_none_is_left(alarm: None) -> None:
    guarded(lambda: 1, lambda error: 0, 1.0)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_alarm_that_comes_too_late_changes_nothing(alarm: None) -> None:
    handler = guarded(lambda: signal.getsignal(signal.SIGALRM), lambda error: None, 1.0)
    assert callable(handler)
    handler(signal.SIGALRM, None)
    assert signal.getsignal(signal.SIGALRM) is not handler


def test_a_handler_that_python_does_not_know_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    monkeypatch.setattr(signal, "signal", lambda *_: pytest.fail("the handler was replaced"))
    assert guarded(lambda: 3, lambda error: 0, 1.0) == 3


def test_in_another_thread_errors_are_caught_without_a_time_limit() -> None:
    answers: list[str] = []

    def fail() -> str:
        raise SystemExit

    thread = threading.Thread(target=lambda: answers.append(guarded(fail, class_of, 1.0)))
    thread.start()
    thread.join()
    assert answers == ["SystemExit"]


def test_one_call_does_not_use_up_all_patience() -> None:
    patience = Patience(seconds=20.0, each=0.05)
    started = time.monotonic()
    assert patience.ask(wait_forever, class_of) == "Overdue"
    assert time.monotonic() - started < 5


def test_patience_that_is_over_calls_nobody() -> None:
    patience = Patience(seconds=0.1, each=5.0)
    assert patience.ask(lambda: "in time", class_of) == "in time"
    assert patience.ask(wait_forever, class_of) == "Overdue"
    assert patience.ask(lambda: "too late", class_of) == "Overdue"
