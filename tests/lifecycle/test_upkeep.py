"""Release and prune: in batches, and never a run that somebody still needs."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import transaction
from django.db.models.functions import Now
from django.db.models.signals import pre_delete

from runcontract import RunPolicy
from runcontract.lifecycle import upkeep
from runcontract.lifecycle.table import table_of
from runcontract.lifecycle.upkeep import prune, release_windows
from tests.lab.models import MailRun, OtherRun, PassRun, Receipt
from tests.support.race import race, values

pytestmark = [
    pytest.mark.django_db(databases=["default", "jobs"]),
    pytest.mark.usefixtures("redis_server"),
]

MAIL = table_of(MailRun)
MONTH = timedelta(days=30)


def ended(count: int, model=MailRun, ago: timedelta = 2 * MONTH, **values) -> list:
    """Succeeded, released long ago."""
    fields = {
        "state": "succeeded",
        "finished_at": Now() - ago,
        "held_until": Now() - ago,
        "released_at": Now() - ago,
    } | values
    return model.objects.bulk_create(
        [model(job_id=f"e{number:05}", **fields) for number in range(count)]
    )


@pytest.fixture
def retain(monkeypatch):
    """MailRun's and OtherRun's terminal rows are kept for a month."""
    for model in (MailRun, OtherRun):
        monkeypatch.setattr(model, "policy", replace(RunPolicy(), retain=MONTH))


def test_windows_that_are_over_are_released_in_batches(monkeypatch) -> None:
    monkeypatch.setattr(upkeep, "BATCH", 100)
    ended(250, released_at=None)
    ended(10, PassRun, released_at=None, held_until=Now() + timedelta(minutes=1))
    asked: list[int] = []
    assert release_windows(MAIL, lambda: asked.append(1)) == 250
    assert len(asked) == 2
    assert not MailRun.objects.filter(released_at=None).exists()
    assert release_windows(table_of(PassRun)) == 0
    assert MailRun.objects.enqueue(job_id="e00000").created


def test_active_runs_are_never_released() -> None:
    MailRun.objects.enqueue(job_id="q")
    assert release_windows(MAIL) == 0


def test_nothing_is_pruned_where_the_policy_does_not_say_so() -> None:
    ended(3)
    assert prune(MAIL) == 0
    assert MailRun.objects.count() == 3


@pytest.mark.usefixtures("retain")
def test_old_runs_are_pruned_in_batches_and_only_what_is_over_and_released(monkeypatch) -> None:
    monkeypatch.setattr(upkeep, "BATCH", 10)
    old = ended(35)
    kept = [
        *ended(2, ago=timedelta(days=3)),
        *MailRun.objects.bulk_create([MailRun(job_id="queued")]),
    ]
    held = MailRun.objects.create(job_id="held")
    values_ = {"state": "failed", "failure": "stale", "finished_at": Now() - 2 * MONTH}
    MailRun.objects.filter(pk=held.pk).update(held_until=Now(), **values_)
    asked: list[int] = []
    assert prune(MAIL, lambda: asked.append(1)) == len(old)
    assert len(asked) == 3
    left = MailRun.objects.values_list("pk", flat=True)
    assert sorted(left) == sorted([held.pk, *(run.pk for run in kept)])
    assert prune(table_of(OtherRun)) == 0
    ended(2, OtherRun)
    assert prune(table_of(OtherRun)) == 2


@pytest.mark.usefixtures("retain")
def test_protected_runs_are_left_and_hold_up_no_other(monkeypatch) -> None:
    monkeypatch.setattr(upkeep, "BATCH", 10)
    runs = ended(40)
    for run in runs[:30:2]:
        Receipt.objects.create(run=run)
    assert prune(MAIL) == 25
    assert MailRun.objects.count() == 15
    assert prune(MAIL) == 0


@pytest.mark.usefixtures("retain")
def test_run_that_a_signal_of_the_consumers_protects_holds_up_no_other(caplog) -> None:
    runs = ended(10)

    def refuse(instance, **_: object) -> None:
        if instance.pk == runs[4].pk:
            raise RuntimeError("not this one")

    pre_delete.connect(refuse, sender=MailRun)
    try:
        assert prune(MAIL) == 9
    finally:
        pre_delete.disconnect(refuse, sender=MailRun)
    assert MailRun.objects.get().pk == runs[4].pk
    assert "not this one" not in caplog.text


@pytest.mark.django_db(transaction=True, databases=["default", "jobs"])
@pytest.mark.usefixtures("retain")
def test_run_that_is_being_redone_is_not_pruned() -> None:
    failed = ended(3, state="failed", failure="permanent")
    with transaction.atomic():
        assert MailRun.objects.get(pk=failed[1].pk).redo().created
        assert values(race(lambda: prune(MAIL))) == [2]
    assert MailRun.objects.get().state == "queued"
    assert prune(MAIL) == 0


@pytest.mark.usefixtures("retain")
def test_run_that_is_redone_between_the_look_and_the_deletion_stays(monkeypatch) -> None:
    runs = ended(3, state="failed", failure="permanent")
    monkeypatch.setattr(upkeep, "_prunable", lambda *_: [run.pk for run in runs])
    MailRun.objects.get(pk=runs[0].pk).redo()
    assert prune(MAIL) == 2
    assert MailRun.objects.get().pk == runs[0].pk
