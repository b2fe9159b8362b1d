"""The lease: one leader, a successor in time, and nobody who leads without knowing."""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from runcontract.models import SchedulerLease
from runcontract.scheduler import lease as module
from runcontract.scheduler.lease import Lease, NotLeading
from tests.support.race import race, values
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(databases=["default", "jobs"])


def expire() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runcontract_schedulerlease SET expires_at = clock_timestamp() - interval '1 s'"
        )


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves: how long ago the lease was renewed, as its holder knows."""
    moved = [0.0]
    real = module.boottime
    monkeypatch.setattr(module, "boottime", lambda: real() + moved[0])

    def forward(seconds: float) -> None:
        moved[0] += seconds

    return forward


@pytest.mark.django_db(transaction=True, databases=["default", "jobs"])
@pytest.mark.race
def test_only_one_of_many_becomes_the_leader() -> None:
    leases = [Lease() for _ in range(10)]
    assert sum(values(race(*[lease.take for lease in leases]))) == 1
    assert sum(lease.leading for lease in leases) == 1
    expire()
    assert sum(values(race(*[lease.take for lease in leases]))) == 1
    assert SchedulerLease.objects.get().term == 2


def test_successor_takes_over_when_the_lease_is_over_and_not_before() -> None:
    first, second = Lease(), Lease()
    assert first.take()
    assert not second.take()
    eventually(second.take, 4)  # SCHEDULER_LEASE is 2 s
    assert (second.term, SchedulerLease.objects.get().holder) == (2, second.holder)


def test_lease_is_renewed_when_a_third_of_it_is_over(clock) -> None:
    lease = Lease()
    lease.take()
    before = SchedulerLease.objects.get().expires_at
    lease.keep()
    assert SchedulerLease.objects.get().expires_at == before
    clock(0.7)
    lease.keep()
    assert SchedulerLease.objects.get().expires_at > before


def test_leader_that_slept_past_its_lease_finds_out_before_it_goes_on(clock) -> None:
    sleeper, successor = Lease(), Lease()
    sleeper.take()
    expire()
    assert successor.take()
    clock(10)
    with pytest.raises(NotLeading):
        sleeper.keep()
    assert not sleeper.leading
    assert not sleeper.take()
    assert SchedulerLease.objects.get().holder == successor.holder


def test_lease_that_is_over_is_not_renewed_even_if_nobody_wanted_it(clock) -> None:
    lease = Lease()
    lease.take()
    expire()
    clock(10)
    with pytest.raises(NotLeading):
        lease.keep()
    assert lease.take()  # as a new term
    assert lease.term == 2


def test_epoch_of_a_leader_that_was_replaced_is_not_remembered() -> None:
    sleeper, successor = Lease(), Lease()
    sleeper.take()
    expire()
    successor.take()
    successor.remember_epoch("server", "new")
    with pytest.raises(NotLeading):
        sleeper.remember_epoch("server", "old")
    assert SchedulerLease.objects.get().epochs == {"server": "new"}


def test_epochs_are_handed_on_with_the_lease() -> None:
    first, second = Lease(), Lease()
    first.take()
    first.remember_epoch("one", "1")
    first.remember_epoch("two", "2")
    first.release()
    second.take()
    assert second.epochs == {"one": "1", "two": "2"}


def test_released_lease_is_free_at_once_and_can_be_read() -> None:
    first, second = Lease(), Lease()
    first.take()
    first.release()
    row = SchedulerLease.objects.get()
    assert timezone.now() - timedelta(minutes=1) < row.expires_at < timezone.now()
    assert second.take()
    first.release()  # not its own any more
    assert SchedulerLease.objects.get().expires_at > timezone.now()


def test_holder_that_lost_its_connection_takes_its_own_lease_again() -> None:
    lease = Lease()
    lease.take()
    lease.lose()
    assert lease.take()
    assert lease.term == 2


def test_clock_goes_on_without_boottime_too(monkeypatch) -> None:
    assert module.boottime() > 0
    monkeypatch.delattr(module.time, "CLOCK_BOOTTIME", raising=False)
    assert module.boottime() > 0
