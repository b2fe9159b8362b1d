"""What the database itself refuses, asked by plain SQL."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from runcontract.contract.constraints import NAME_LIMIT, expected_names
from runcontract.lifecycle.table import table_of
from runcontract.registry import run_models
from tests.lab.models import MailRun, PassRun
from tests.support.runs import sql

pytestmark = pytest.mark.django_db

QUEUED: dict[str, Any] = {
    "task": "succeed",
    "args": "{}",
    "hook": "",
    "progress": 0,
    "note": "",
    "job_id": "j",
    "lock_key": None,
    "lane": "default",
    "state": "queued",
    "failure": "",
    "lease": 0,
    "worker": "",
    "heartbeat_at": None,
    "fingerprint": "",
    "stats": "{}",
    "rerun_requested": False,
    "cancel_requested": False,
    "finished_at": None,
    "held_until": None,
    "released_at": None,
    "attempts": 0,
}
NOW = "2024-05-01 12:00:00+00"
RUNNING = {"state": "running", "worker": "w", "lease": 1, "heartbeat_at": NOW}
SUCCEEDED = {"state": "succeeded", "finished_at": NOW, "held_until": NOW}
FAILED = SUCCEEDED | {"state": "failed", "failure": "stale"}


def put(**columns: Any) -> None:
    """Insert a row; queued unless told otherwise."""
    row = QUEUED | columns
    names, places = ", ".join(row), ", ".join(["%s"] * len(row))
    sql(f"INSERT INTO lab_mailrun ({names}) VALUES ({places})", *row.values())


@pytest.mark.parametrize("row", [{}, RUNNING, SUCCEEDED, FAILED])
def test_a_row_of_each_state_is_accepted(row: dict[str, Any]) -> None:
    put(**row)


@pytest.mark.parametrize(
    ("constraint", "row"),
    [
        ("state", {"state": "deferred"}),
        ("keys", {"job_id": ""}),
        ("keys", {"lock_key": ""}),
        ("running", RUNNING | {"heartbeat_at": None}),
        ("running", RUNNING | {"worker": ""}),
        ("running", RUNNING | {"lease": 0}),
        ("active", {"finished_at": NOW}),
        ("active", {"held_until": NOW}),
        ("active", {"released_at": NOW}),
        ("active", RUNNING | {"finished_at": NOW}),
        ("terminal", SUCCEEDED | {"finished_at": None}),
        ("terminal", SUCCEEDED | {"held_until": None}),
        ("terminal", FAILED | {"finished_at": None}),
        ("failure", FAILED | {"failure": ""}),
        ("failure", FAILED | {"failure": "bored"}),
        ("failure", SUCCEEDED | {"failure": "stale"}),
        ("failure", {"failure": "stale"}),
        ("failure", RUNNING | {"failure": "cancelled"}),
    ],
)
def test_a_row_that_cannot_be_is_refused(constraint: str, row: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError, match=f"lab_mailrun_{constraint}"), transaction.atomic():
        put(**row)


@pytest.mark.parametrize("holder", [{}, RUNNING])
@pytest.mark.parametrize("newcomer", [{}, RUNNING])
def test_two_active_rows_never_share_a_lock(
    holder: dict[str, Any], newcomer: dict[str, Any]
) -> None:
    put(job_id="a", lock_key="K", **holder)
    with pytest.raises(IntegrityError, match="lab_mailrun_lock"), transaction.atomic():
        put(job_id="b", lock_key="K", **newcomer)


def test_terminal_rows_and_null_leave_the_lock_free() -> None:
    for number, row in enumerate([SUCCEEDED, FAILED, {}]):
        put(job_id=f"a{number}", lock_key="K", **row)
    for number in range(3):
        put(job_id=f"b{number}", lock_key=None)


@pytest.mark.parametrize("holder", [{}, RUNNING, SUCCEEDED, FAILED])
def test_a_job_id_is_held_until_it_is_released(holder: dict[str, Any]) -> None:
    put(**holder)
    with pytest.raises(IntegrityError, match="lab_mailrun_job_id"), transaction.atomic():
        put()
    sql(
        "UPDATE lab_mailrun SET state = 'succeeded', failure = '', finished_at = now(),"
        " held_until = now(), released_at = now()"
    )
    put()


def test_waiting_rows_are_made_due_beside_one_that_keeps_its_lock() -> None:
    """H01: two waiting rows with one lock cannot be made in the first place."""
    put(job_id="a", lock_key="Z", next_retry_at=NOW)
    with pytest.raises(IntegrityError, match="lab_mailrun_lock"), transaction.atomic():
        put(job_id="b", lock_key="Z", next_retry_at=NOW)


@pytest.mark.django_db(databases=["default", "jobs"])
@pytest.mark.parametrize("model", run_models(), ids=lambda model: model.__name__)
def test_each_run_table_has_every_constraint_and_index_in_the_database(model: Any) -> None:
    rows = sql(
        "SELECT conname FROM pg_constraint WHERE conrelid = %s::regclass AND convalidated"
        " UNION SELECT indexrelid::regclass::text FROM pg_index"
        " WHERE indrelid = %s::regclass AND indisvalid",
        model._meta.db_table,
        model._meta.db_table,
        using=table_of(model).alias,
    )
    assert expected_names(model) <= {name for (name,) in rows}


def test_no_index_covers_what_moves_with_a_heartbeat() -> None:
    for model in run_models():
        for index in model._meta.indexes:
            assert "heartbeat_at" not in {name.lstrip("-") for name in index.fields}
    found = sql(
        "SELECT count(*) FROM pg_indexes WHERE tablename LIKE 'lab_%%'"
        " AND indexdef LIKE '%%heartbeat_at%%'"
    )
    assert found == [(0,)]


def test_names_fit_into_postgres_and_differ() -> None:
    for model in run_models():
        names = expected_names(model)
        assert len(names) == 13
        assert all(len(name.encode()) <= NAME_LIMIT for name in names)


def test_the_queued_index_is_ordered_by_what_each_kind_waits_for() -> None:
    def fields(model: Any) -> list[str]:
        return next(i.fields for i in model._meta.indexes if i.name.endswith("_queued"))

    assert fields(MailRun) == ["lane", "dispatched_at", "next_retry_at"]
    assert fields(PassRun) == ["lane", "dispatched_at"]


def test_the_database_writes_queued_at_itself() -> None:
    put()
    found = sql(
        "SELECT queued_at BETWEEN now() - interval '1 minute' AND clock_timestamp()"
        " FROM lab_mailrun"
    )
    assert found == [(True,)]
