"""In this process a child's handlers are set for a test only."""

import signal
from collections.abc import Iterator

import pytest

NUMBERS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGALRM,
)


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    timer = signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.setitimer(signal.ITIMER_REAL, *timer)
