"""When a schedule fires: cron's rules, the two DST nights, and what can never fire."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from runcontract.exceptions import ConfigurationError
from runcontract.models import RunContract
from runcontract.scheduler import schedules as module
from runcontract.scheduler.schedules import Schedule, problems, schedule, schedules
from tests.lab.models import MailRun, Order

ZONES = ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]
NIGHTS = {
    "America/New_York": ("2025-03-09", "2025-11-02"),
    "Europe/Berlin": ("2025-03-30", "2025-10-26"),
    "Australia/Lord_Howe": ("2025-10-05", "2025-04-06"),
    "Asia/Kathmandu": ("2025-03-09", "2025-11-02"),
    "UTC": ("2025-03-09", "2025-11-02"),
}
DAILY = ["30 2 * * *", "30 1 * * *", "0 9 * * *", "0 0 * * *"]
OFTEN = ["0 * * * *", "*/15 * * * *"]


@pytest.fixture
def own_schedules():
    """What a test declares is forgotten afterwards."""
    before = dict(module._schedules), dict(module._modules)
    yield
    module._schedules.clear()
    module._schedules.update(before[0])
    module._modules.clear()
    module._modules.update(before[1])


def at(day: str, zone: str, hour: int = 0) -> datetime:
    return datetime.fromisoformat(day).replace(hour=hour, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def ticked(expression: str, zone: str, day: str, catch_up: str, restart: datetime | None = None):
    """Fire times from noon of the day before, 36 hours long, asked every five minutes."""
    item = Schedule("s", MailRun, expression, zone, catch_up)
    last = at(day, zone) - timedelta(hours=12)
    now, fired = last, []
    for _ in range(36 * 12):
        now += timedelta(minutes=5)
        if restart == now:
            last = max([last, *fired])  # all that a new process knows is the newest tick
        for moment in item.fire_times(last, now):
            assert last < moment <= now
            fired.append(moment)
            last = moment
    return fired


@pytest.mark.parametrize("catch_up", ["once", "all"])
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("night", [0, 1], ids=["spring", "autumn"])
def test_dst_nights_follow_crons_rules(zone: str, night: int, catch_up: str) -> None:
    day = NIGHTS[zone][night]
    for expression in DAILY:
        fired = ticked(expression, zone, day, catch_up)
        here = [moment.astimezone(ZoneInfo(zone)) for moment in fired]
        assert len(set(fired)) == len(fired)
        days = Counter(moment.date().isoformat() for moment in here)
        assert days[day] == 1, (expression, here)
        if expression in ("0 9 * * *", "0 0 * * *"):
            assert {f"{moment:%-M %-H} * * *" for moment in here} == {expression}
    for expression, step in zip(OFTEN, [60, 15], strict=True):
        fired = ticked(expression, zone, day, catch_up)
        gaps = Counter((b - a).total_seconds() / 60 for a, b in pairwise(fired))
        odd = {gap for gap in gaps if gap != step}
        # Lord Howe's half hour moves the full hours once; nothing is doubled and nothing lost.
        assert odd <= ({90.0, 30.0} if zone == "Australia/Lord_Howe" and step == 60 else set())


def test_each_real_hour_and_quarter_of_an_autumn_day_fires() -> None:
    begin, end = at("2025-11-02", "America/New_York"), at("2025-11-03", "America/New_York")
    for expression, count in (("0 * * * *", 25), ("*/15 * * * *", 100)):
        item = Schedule("s", MailRun, expression, "America/New_York", "all")
        fired = item.fire_times(begin - timedelta(seconds=1), end - timedelta(seconds=1))
        assert len(set(fired)) == count


def test_spring_time_that_is_missing_fires_when_the_gap_ends() -> None:
    item = Schedule("s", MailRun, "30 2 * * *", "America/New_York")
    begin = at("2025-03-09", "America/New_York")
    assert item.fire_times(begin, begin + timedelta(hours=6)) == [at("2025-03-09", "UTC", 7)]


@pytest.mark.parametrize("catch_up", ["once", "all"])
def test_restart_in_the_repeated_hour_fires_nothing_twice(catch_up: str) -> None:
    for minute in range(0, 180, 20):
        restart = at("2025-11-02", "UTC", 5) + timedelta(minutes=minute)
        fired = ticked("30 1 * * *", "America/New_York", "2025-11-02", catch_up, restart)
        assert fired == [at("2025-11-02", "UTC", 5) + timedelta(minutes=30)]


def test_first_time_in_the_repeated_hour_is_not_fired_by_one_who_came_in_the_second() -> None:
    item = Schedule("s", MailRun, "30 1 * * *", "America/New_York", "all")
    second = datetime(2025, 11, 2, 6, 10, tzinfo=UTC)  # 01:10 for the second time
    assert item.fire_times(second, second + timedelta(hours=5)) == []


def test_every_second_is_a_fire_time_of_six_fields() -> None:
    item = Schedule("s", MailRun, "* * * * * *", "Asia/Kathmandu", "all")
    begin = datetime(2025, 1, 1, 0, 0, 0, 400_000, tzinfo=UTC)
    fired = item.fire_times(begin, begin + timedelta(seconds=5))
    assert [moment.second for moment in fired] == [1, 2, 3, 4, 5]
    assert not any(moment.microsecond for moment in fired)
    newest = Schedule("s", MailRun, "* * * * * *").fire_times(begin, begin + timedelta(seconds=5))
    assert newest == fired[-1:]


def test_long_outage_is_caught_up_a_hundred_at_a_time() -> None:
    item = Schedule("s", MailRun, "* * * * *", catch_up="all")
    begin = datetime(2025, 1, 1, tzinfo=UTC)
    end = begin + timedelta(days=180)
    first = item.fire_times(begin, end)
    assert (len(first), first[0]) == (100, begin + timedelta(minutes=1))
    assert item.fire_times(first[-1], end)[0] == begin + timedelta(minutes=101)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"expression": "0 0 30 2 *"}, "no time that ever comes"),
        ({"expression": "61 * * * *"}, "no time that ever comes"),
        ({"expression": "nightly"}, "no time that ever comes"),
        ({"expression": ""}, "no time that ever comes"),
        ({"expression": None}, "no time that ever comes"),
        ({"timezone": "Mars/Olympus"}, "no time zone 'Mars/Olympus'"),
        ({"timezone": "../../etc/passwd"}, "no time zone"),
        ({"timezone": "America"}, "no time zone"),
        ({"timezone": ""}, "no time zone"),
        ({"timezone": None}, "no time zone"),
        ({"lane": "nowhere"}, "no lane 'nowhere'"),
        ({"fields": {"colour": 1}}, "no field 'colour'"),
        ({"lock_key": ""}, "lock_key must not be empty"),
    ],
)
def test_schedule_that_can_never_fire_says_why(changes: dict, said: str) -> None:
    values = {"name": "bad", "model": MailRun, "expression": "* * * * *"} | changes
    assert said in (Schedule(**values).problem() or "")


def test_good_schedule_has_no_problem() -> None:
    item = Schedule("good", MailRun, "0 9 * * MON-FRI", "Europe/Berlin", fields={"task": "nap"})
    assert item.problem() is None


def test_bad_declaration_is_refused_where_it_is_written(own_schedules) -> None:
    for arguments, options in [
        (("twice", MailRun, "1 * * * *"), {}),
        (("x", MailRun, "* * * * *"), {"catch_up": "never"}),
        (("", MailRun, "* * * * *"), {}),
        (("n" * 201, MailRun, "* * * * *"), {}),
        (("order", Order, "* * * * *"), {}),
        (("abstract", RunContract, "* * * * *"), {}),
    ]:
        schedule("twice", MailRun, "* * * * *")
        with pytest.raises(ConfigurationError):
            schedule(*arguments, **options)
    assert "twice" in [item.name for item in schedules()]


def test_broken_schedules_module_holds_up_no_other(own_schedules, monkeypatch, caplog) -> None:
    module._modules.clear()
    monkeypatch.setattr(module, "import_module", lambda name: {}[name])
    first = schedules()
    assert "cannot be imported; its schedules do not fire" in caplog.text
    count = len(caplog.records)
    assert schedules() == first
    assert any("KeyError" in problem for problem in problems())
    assert len(caplog.records) == count
