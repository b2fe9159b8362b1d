"""Pauses: spread, bounded, never earlier than the other side asked, and never an exception."""

import random
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from email.utils import format_datetime
from typing import Any

import pytest

from runcontract.contract.policy import EffectivePolicy
from runcontract.contract.retry import backoff, parse_retry_after, pause

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LATER = NOW + 90 * SECOND
BACKOFF = {"base": 30 * SECOND, "cap": 300 * SECOND, "floor": SECOND}


class Rude(str):
    """A text that does not let itself be read."""

    def strip(self, chars: str | None = None) -> str:
        raise RuntimeError


class Lost(tzinfo):
    """A zone that does not know where it is."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        raise RuntimeError

    dst = utcoffset

    def tzname(self, moment: datetime | None) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("1.5", 1.5),
        (" 7 ", 7),
        (b"120", 120),
        (120, 120),
        (1.5, 1.5),
        (0, 0),
        (timedelta(minutes=2), 120),
        (timedelta(0), 0),
        (LATER, 90),
        (LATER.astimezone(timezone(timedelta(hours=5))), 90),
        (LATER.astimezone().replace(tzinfo=None), 90),
        (format_datetime(LATER, usegmt=True), 90),
        (format_datetime(LATER, usegmt=True).encode(), 90),
        ("Sun, 01 Mar 2026 12:01:30 -0000", 90),
        ("Sun, 01 Mar 2026 12:01:30", 90),
        ("Sun, 01 Mar 2026 14:01:30 +0200", 90),
        ("Sunday, 01-Mar-26 12:01:30 GMT", 90),
        ("Sun Mar  1 12:01:30 2026", 90),
        ("31622400", 31622400),
    ],
)
def test_a_retry_after_is_read_in_every_form(value: Any, seconds: float) -> None:
    assert parse_retry_after(value, now=NOW) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        *("-5", "1e400", "inf", "nan", "99999999999999999999", "120, 120", "", " ", "soon", "+5"),
        *(
            "١٢٠",
            "Sun, \u0660\u0661 Mar 2026 12:01:30 GMT",
            "31622401",
            "9" * 10_000_000,
            "1" * 13,
            "0x10",
        ),
        *("Sun, 01 Mar 2026 11:58:30 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "Sun, 99 Mar 2026"),
        *("Sun, 01 Mar 2026 12:01:30 +9999999999", "a\ud800b", "1\x00"),
        *(b"\xff", b"", -5, -0.1, 1e300, float("inf"), float("nan"), 10**400, True, None),
        *(timedelta(seconds=-1), timedelta.max, datetime.max, datetime.min, NOW - SECOND),
        *(datetime.max.replace(tzinfo=UTC), datetime(2026, 3, 2, tzinfo=Lost())),
        *([], {}, object(), Rude("5"), ["120"]),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_cannot_be_honoured_asks_for_nothing(value: Any) -> None:
    assert parse_retry_after(value, now=NOW) is None


def test_a_date_is_measured_from_the_present() -> None:
    wait = parse_retry_after(datetime.now(UTC) + 90 * SECOND)
    assert wait is not None
    assert 80 * SECOND < wait <= 90 * SECOND


@pytest.mark.parametrize(
    ("attempt", "longest"),
    [
        (-3, 30),
        (0, 30),
        (1, 30),
        (2, 60),
        (3, 120),
        (4, 240),
        (5, 300),
        (5_000, 300),
        (10**30, 300),
    ],
)
def test_the_longest_pause_doubles_up_to_the_cap(attempt: int, longest: float) -> None:
    assert backoff(attempt, **BACKOFF, uniform=lambda low, high: high) == longest * SECOND
    assert backoff(attempt, **BACKOFF, uniform=lambda low, high: low) == SECOND


def test_pauses_are_spread_over_the_whole_range() -> None:
    chance = random.Random(1).uniform
    pauses = [backoff(3, **BACKOFF, uniform=chance) / SECOND for _ in range(1000)]
    counts = [sum(low <= one < low + 30 for one in pauses) for low in (0, 30, 60, 90)]
    assert sum(counts) == 1000
    assert all(190 < count < 310 for count in counts)


def test_the_floor_wins_over_the_cap_and_nothing_overflows() -> None:
    most = timedelta.max
    assert backoff(1, base=SECOND, cap=SECOND, floor=5 * SECOND) == 5 * SECOND
    longest = backoff(5_000, base=most, cap=most, floor=SECOND, uniform=lambda low, high: high)
    assert longest == timedelta(days=366)


@pytest.fixture
def policy() -> EffectivePolicy:
    return EffectivePolicy(
        lane="default",
        max_attempts=5,
        backoff_base=30 * SECOND,
        backoff_cap=300 * SECOND,
        short_pause=60 * SECOND,
        retry_after_max=timedelta(hours=24),
        hold_succeeded=timedelta(hours=24),
        hold_failed=60 * SECOND,
        on_lost="fail",
        max_lost=3,
        timeout=None,
        stale_after=120 * SECOND,
        retain=None,
        atomic=False,
        classify=None,
        backoff_floor=SECOND,
    )


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        (100, 100, 110),  # jitter comes on top
        ("3600", 3600, 3960),  # the back-off's cap does not apply
        (0.2, 1, 1),  # the floor does
        (timedelta(hours=23), 82800, 86400),  # so does the Retry-After's own limit
        (timedelta(hours=24), 86400, 86400),
        (timedelta(days=10), 86400, 86400),
        (LATER, 90, 99),
        (0, 1, 60),  # asks for no time: the usual back-off of a second attempt
        ("soon", 1, 60),
        (None, 1, 60),
    ],
)
def test_a_retry_after_is_a_lower_bound(
    policy: EffectivePolicy, asked: Any, least: float, most: float
) -> None:
    shortest = pause(2, asked, policy, uniform=lambda low, high: low, now=NOW)
    longest = pause(2, asked, policy, uniform=lambda low, high: high, now=NOW)
    assert (shortest, longest) == (least * SECOND, most * SECOND)


def test_runs_that_were_sent_away_together_come_back_apart(policy: EffectivePolicy) -> None:
    pauses = {pause(1, "120", policy) for _ in range(100)}
    assert len(pauses) > 90
    assert all(120 * SECOND <= one <= 132 * SECOND for one in pauses)
