"""Sweep: what was never sent or got lost is sent, and nothing else."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from runcontract.lifecycle import sweep
from runcontract.lifecycle.sweep import sweep_everything, sweep_lost, sweep_unsent
from runcontract.lifecycle.table import table_of
from runcontract.transport import breaker_of
from tests.lab.models import MailRun, OtherRun, PassRun, UuidRun
from tests.support.race import race, values
from tests.support.servers import hanging, out_of_memory, read_only

pytestmark = pytest.mark.django_db(databases=["default", "jobs"])

GRACE = timedelta(seconds=20)
MAIL = table_of(MailRun)
LANE = "rq:queue:default"


@pytest.fixture(autouse=True)
def closed_breaker(redis_server):
    """An outage that a test made is forgotten."""
    breaker_of("default")._closed_until = 0.0
    yield
    breaker_of("default")._closed_until = 0.0


def queued(count: int, model=MailRun, **values) -> list:
    """Rows that the consumer inserts by itself: nothing was sent."""
    rows = [model(job_id=f"j{number:05}", **values) for number in range(count)]
    return model.objects.bulk_create(rows)


def messages(redis_server, lane: str = LANE) -> list[str]:
    return [message.decode() for message in redis_server.lrange(lane, 0, -1)]


def backlog(redis_server, count: int, apart: timedelta = timedelta(seconds=1)) -> list[str]:
    """A lane whose messages were sent one after the other, the newest just now."""
    queued(count)
    sweep_unsent(MAIL)
    now = timezone.now()
    for place, run in enumerate(MailRun.objects.order_by("-pk")):
        MailRun.objects.filter(pk=run.pk).update(dispatched_at=now - place * apart)
    return messages(redis_server)


def test_rows_that_were_never_sent_are_sent_in_batches_and_in_their_order(redis_server) -> None:
    runs = queued(2500)
    seen: list[int] = []
    assert sweep_unsent(MAIL, lambda: seen.append(redis_server.llen(LANE))) == 2500
    assert seen == [1000, 2000]
    assert messages(redis_server) == [f"lab-mailrun-{run.pk}-0" for run in runs]
    assert not MailRun.objects.filter(dispatched_at=None).exists()
    assert sweep_unsent(MAIL) == 0
    assert redis_server.llen(LANE) == 2500


def test_retry_is_sent_when_its_time_has_come_and_not_before(redis_server) -> None:
    queued(3, next_retry_at=timezone.now() + timedelta(minutes=5))
    assert sweep_unsent(MAIL) == 0
    MailRun.objects.filter(job_id="j00001").update(next_retry_at=timezone.now())
    assert sweep_unsent(MAIL) == 1
    assert messages(redis_server) == [f"lab-mailrun-{MailRun.objects.get(job_id='j00001').pk}-0"]


def test_rows_of_every_kind_of_key_and_without_a_counter_are_sent(redis_server) -> None:
    for model in (UuidRun, PassRun, OtherRun):
        queued(2, model)
        assert sweep_unsent(table_of(model)) == 2
    assert redis_server.llen(LANE) == 6


def test_row_of_a_lane_that_is_not_configured_is_left(redis_server) -> None:
    queued(1, lane="gone")
    assert sweep_unsent(MAIL) == 0


@pytest.mark.django_db(transaction=True, databases=["default", "jobs"])
def test_row_that_somebody_holds_is_left_for_later(redis_server) -> None:
    queued(2)
    with transaction.atomic():
        MailRun.objects.select_for_update().get(job_id="j00000")
        assert values(race(lambda: sweep_unsent(MAIL))) == [1]
    assert sweep_unsent(MAIL) == 1


# Lost messages.


def test_long_backlog_is_sent_again_in_no_part(redis_server) -> None:
    before = backlog(redis_server, 300)
    assert sweep_lost(MAIL, GRACE) == 0
    redis_server.lpop(LANE, 100)  # a worker took them and has them claimed
    MailRun.objects.filter(pk__in=MailRun.objects.order_by("pk")[:100]).update(
        state="running", lease=F("lease") + 1, worker="w", heartbeat_at=timezone.now()
    )
    assert sweep_lost(MAIL, GRACE) == 0
    assert messages(redis_server) == before[100:]


def test_what_was_sent_before_the_head_of_its_lane_is_lost(redis_server) -> None:
    before = backlog(redis_server, 100)
    redis_server.ltrim(LANE, 50, -1)
    # The head was sent 49 s ago; 20 s of grace leave those that were sent more than 69 s ago.
    assert sweep_lost(MAIL, GRACE) == 30
    assert messages(redis_server) == [*before[50:], *before[:30]]
    assert sweep_lost(MAIL, GRACE) == 0


def test_all_is_lost_with_an_empty_lane_but_the_newest_have_a_grace(redis_server) -> None:
    before = backlog(redis_server, 100)
    redis_server.delete(LANE)
    assert sweep_lost(MAIL, GRACE) == 80
    assert messages(redis_server) == before[:80]


def test_other_lanes_tell_nothing_about_this_one(redis_server) -> None:
    backlog(redis_server, 30)
    MailRun.objects.filter(job_id__lt="j00010").update(lane="bulk")
    # The bulk lane is empty, so its ten are lost; the default lane has its whole backlog.
    assert sweep_lost(MAIL, timedelta(seconds=5)) == 10
    assert redis_server.llen("rq:queue:bulk") == 10


@pytest.mark.parametrize(
    "head",
    [
        b"nonsense",
        b"\x80\xff\x00binary",
        b"lab-mailrun-999999-0",
        b"lab-mailrun-1-9",
        b"lab-order-1-0",
        b"lab-mailrun-0123456789abcdef0123456789abcdef-0",
        b"lab-uuidrun-1-0",
        b"lab-mailrun-99999999999999999999-1",
        b"auth-user-1-0",
        b"x" * 100_000,
    ],
)
def test_head_that_stands_for_no_queued_run_tells_nothing(redis_server, head: bytes) -> None:
    backlog(redis_server, 100)
    redis_server.lpush(LANE, head)
    assert sweep_lost(MAIL, GRACE) == 0
    redis_server.ltrim(LANE, 51, -1)
    assert sweep_lost(MAIL, GRACE) == 30


def test_deferred_and_running_and_ended_runs_are_never_lost(redis_server) -> None:
    backlog(redis_server, 40)
    redis_server.delete(LANE)
    runs = MailRun.objects.order_by("pk")
    later = {"next_retry_at": timezone.now() + timedelta(minutes=1)}
    MailRun.objects.filter(pk__in=runs[:10]).update(**later)
    ended = {"finished_at": timezone.now(), "held_until": timezone.now()}
    MailRun.objects.filter(pk__in=runs[10:20]).update(state="succeeded", **ended)
    assert sweep_lost(MAIL, timedelta(seconds=10)) == 10


def test_head_of_a_database_that_is_away_blames_nobody(redis_server, monkeypatch) -> None:
    queued(1, OtherRun)
    sweep_unsent(table_of(OtherRun))
    queued(1)
    sweep_unsent(MAIL)
    real = sweep.execute

    def away(alias, *rest):
        if alias == "jobs":
            raise sweep.DatabaseFailure[0]("gone")
        return real(alias, *rest)

    monkeypatch.setattr(sweep, "execute", away)
    assert sweep_lost(MAIL, GRACE) == 0
    with pytest.raises(sweep.DatabaseFailure):
        sweep_lost(table_of(OtherRun), GRACE)


def test_everything_due_is_sent_again_after_a_loss_and_each_batch_asks(redis_server) -> None:
    runs = queued(3000)
    sweep_unsent(MAIL)
    redis_server.flushall()
    asked: list[int] = []
    assert sweep_everything(MAIL, ["default"], lambda: asked.append(1)) == (3000, True)
    assert len(asked) == 3
    assert messages(redis_server) == [f"lab-mailrun-{run.pk}-0" for run in runs]


# Redis is not there.


@pytest.mark.parametrize("trouble", [read_only, out_of_memory])
def test_what_redis_does_not_take_is_not_stamped(redis_server, trouble) -> None:
    queued(5)
    with trouble(redis_server):
        assert sweep_unsent(MAIL) == 0
        assert breaker_of("default").open
        assert sweep_unsent(MAIL) == 0
        assert sweep_everything(MAIL, ["default"]) == (0, False)
    assert MailRun.objects.filter(dispatched_at=None).count() == 5
    breaker_of("default")._closed_until = 0.0
    assert sweep_unsent(MAIL) == 5
    assert redis_server.llen(LANE) == 5


@pytest.mark.chaos
def test_sweep_does_not_wait_long_for_a_redis_that_hangs(redis_server, valkey) -> None:
    queued(5)
    begun = timezone.now()
    with hanging(valkey):
        assert sweep_unsent(MAIL) == 0
        assert sweep_lost(MAIL, GRACE) == 0
    assert timezone.now() - begun < timedelta(seconds=6)
    assert MailRun.objects.filter(dispatched_at=None).count() == 5


@pytest.mark.parametrize("value", ["string", "hash"])
def test_lane_that_is_no_list_is_repaired_by_the_sweep(redis_server, value: str, caplog) -> None:
    queued(3)
    queued(3, PassRun, lane="bulk")
    if value == "string":
        redis_server.set(LANE, "no list")
    else:
        redis_server.hset(LANE, "no", "list")
    assert sweep_unsent(MAIL) == 3
    assert sweep_unsent(table_of(PassRun)) == 3
    assert (redis_server.llen(LANE), redis_server.llen("rq:queue:bulk")) == (3, 3)
    assert caplog.text.count("was not a list") == 1
    assert not breaker_of("default").open
    redis_server.set(LANE, "again")
    assert sweep_lost(MAIL, timedelta(0)) == 3
    assert redis_server.llen(LANE) == 3
