"""Schedules with a past, which a test writes into the ticks' table."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runcontract.models import Tick
from runcontract.scheduler.schedules import Schedule


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def daily_at(moment: datetime) -> str:
    """The expression of a daily schedule at that minute, in UTC."""
    return f"{moment.minute} {moment.hour} * * *"


@pytest.fixture
def seen() -> Callable[..., None]:
    """`seen(schedule, ago)`: its newest fire time lies that far back."""

    def write(item: Schedule, ago: timedelta) -> None:
        ticks = Tick.objects.using(item.table.alias)
        ticks.create(schedule=item.name, fire_at=datetime.now(UTC) - ago, outcome="enqueued")

    return write


def outcomes(item: Schedule) -> list[Any]:
    """What became of each fire time but the first, oldest first."""
    ticks = Tick.objects.using(item.table.alias).filter(schedule=item.name).order_by("fire_at")
    return list(ticks.values_list("outcome", flat=True))[1:]
