"""The contract as models: what `save` may write, and the doors of a run."""

from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, models, transaction
from django.test.utils import isolate_apps

from runcontract.contract.fields import RUN_FIELDS
from runcontract.lifecycle.table import Table
from runcontract.models import RetryContract, RunContract, SchedulerLease, Tick
from runcontract.registry import aliases, run_models, tables
from tests.lab.models import MailRun, Order, OtherRun, PassRun, SyncRun, UuidRun
from tests.support.runs import again, an_error, claim, claimed, failed, queued, row_of, sql

pytestmark = pytest.mark.django_db


def test_save_writes_own_columns_and_leaves_the_contracts_alone() -> None:
    run = queued(MailRun, job_id="a")
    claim(run)
    run.state, run.lease, run.stats, run.note = "succeeded", 99, {"x": 1}, "mine"
    run.save()
    row = row_of(run)
    assert row["note"] == "mine"
    assert (row["state"], row["lease"], row["attempts"]) == ("running", 1, 1)
    assert "x" not in row["stats"]


@pytest.mark.parametrize("field", [*RUN_FIELDS, "attempts", "next_retry_at"])
def test_no_contract_column_is_written_by_name_either(field: str) -> None:
    run = queued(MailRun, job_id="a")
    before = row_of(run)
    setattr(run, field, getattr(claim(run), field))
    claimed_row = row_of(run)
    setattr(run, field, before[field] if field not in ("stats",) else {})
    run.note = "mine"
    run.save(update_fields=["note", field])
    assert row_of(run) == claimed_row | {"note": "mine"}


def test_only_contract_columns_to_save_is_nothing_to_save() -> None:
    run = queued(MailRun)
    before = row_of(run)
    run.save(update_fields=["state", "lease"])
    assert row_of(run) == before


def test_a_foreign_key_may_be_saved_by_either_name() -> None:
    run, order = queued(SyncRun), Order.objects.create()
    run.order_id = order.pk
    run.save(update_fields=["order_id"])
    assert row_of(run)["order_id"] == order.pk
    run.order = None
    run.save(update_fields=["order"])
    assert row_of(run)["order_id"] is None


def test_an_unknown_name_is_still_an_error() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        queued(MailRun).save(update_fields=["nonsense"])


def test_a_deleted_row_is_never_inserted_again() -> None:
    run = queued(MailRun)
    MailRun.objects.filter(pk=run.pk).delete()
    with pytest.raises(DatabaseError), transaction.atomic():
        run.save()
    assert not MailRun.objects.exists()


def test_deferred_columns_are_not_loaded_to_be_saved() -> None:
    run = MailRun.objects.defer("args", "stats").get(pk=queued(MailRun, args={"n": 1}).pk)
    sql("UPDATE lab_mailrun SET args = '{\"n\": 2}'")
    run.note = "mine"
    run.save()
    assert row_of(run)["note"] == "mine"
    assert again(run).args == {"n": 2}


def test_a_new_instance_with_the_key_of_a_row_does_not_overwrite_it() -> None:
    run = claimed(MailRun)
    before = row_of(run)
    with pytest.raises(IntegrityError), transaction.atomic():
        MailRun(pk=run.pk, job_id="other").save()
    MailRun(pk=run.pk, note="mine", lease=99).save(update_fields=["note", "lease"])
    assert row_of(run) == before | {"note": "mine"}
    MailRun(pk=run.pk, note="yours", job_id="other").save(force_update=True)
    assert row_of(run) == before | {"note": "yours"}


def test_rows_made_by_the_orm_are_queued_runs() -> None:
    one = MailRun.objects.create(note="one")
    (two,) = MailRun.objects.bulk_create([MailRun(note="two")])
    for run in (one, two):
        row = row_of(run)
        assert (row["state"], row["lease"], row["attempts"]) == ("queued", 0, 0)
        assert row["queued_at"] is not None
        assert row["dispatched_at"] is None
    assert one.job_id != two.job_id


def test_a_run_names_itself() -> None:
    assert str(queued(MailRun, job_id="a")) == "lab.MailRun a"


def test_a_model_without_perform_says_so() -> None:
    with pytest.raises(NotImplementedError, match=r"lab\.MailRun has no perform"):
        RunContract.perform(MailRun(), None)
    RunContract.on_failed(MailRun(), an_error())


def test_the_doors_of_a_run_lead_to_its_moves() -> None:
    run = queued(MailRun, job_id="a")
    assert run.cancel() == "cancelled"
    assert again(run).redo()
    plain = failed(PassRun, job_id="p")
    assert plain.redo()
    (answer,) = MailRun.objects.bulk_enqueue([{"job_id": "a"}])
    assert answer.reason == "duplicate"


def test_the_schedulers_own_rows_name_themselves() -> None:
    lease = SchedulerLease(name="main", holder="h", term=3)
    tick = Tick(schedule="nightly", fire_at=_at_noon(), outcome="enqueued")
    assert str(lease) == "main: h, term 3"
    assert str(tick) == "nightly at 2024-05-01 12:00 UTC: enqueued"


def _at_noon() -> Any:
    return sql("SELECT '2024-05-01 12:00Z'::timestamptz")[0][0]


def test_the_registry_knows_each_concrete_run_model_once() -> None:
    found = run_models()
    assert {MailRun, SyncRun, PassRun, OtherRun, UuidRun} <= set(found)
    assert RunContract not in found
    assert RetryContract not in found
    assert found == sorted(found, key=lambda model: model._meta.label_lower)
    assert [table.model for table in tables()] == found
    assert aliases() == ["default", "jobs"]


@isolate_apps("tests.lab")
def test_a_plain_run_may_have_attempts_of_its_own() -> None:
    class Surgery(RunContract):
        attempts = models.IntegerField(default=3)

        class Meta(RunContract.Meta):
            app_label = "lab"

    table = Table(Surgery)
    assert not table.counts
    assert "attempts" in [field.name for field in table.own_fields]
    assert "attempts" in Surgery(pk=1)._own_columns(None)
