"""bulk_enqueue: any number, in order, each with its own answer, in a few statements."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import override_settings

from runcontract import signals
from runcontract.exceptions import InvalidRun
from runcontract.lifecycle import bulk, insert
from runcontract.lifecycle.database import execute
from tests.lab.models import MailRun, UuidRun
from tests.support.runs import (
    again,
    change,
    claimed,
    messages,
    own_unique,
    queued,
    row_of,
    sql,
    succeeded,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_server")]

committed = pytest.mark.django_db(transaction=True)


@pytest.fixture
def statements(monkeypatch: Any) -> list[str]:
    """Each statement that the database is sent by what is under test."""
    seen: list[str] = []

    def counting(function: Any) -> Any:
        def call(alias: str, statement: str, params: Any = ()) -> Any:
            seen.append(statement)
            return function(alias, statement, params)

        return call

    def inserting(function: Any) -> Any:
        def call(*given: Any) -> Any:
            seen.append("INSERT")
            return function(*given)

        return call

    monkeypatch.setattr(bulk, "execute", counting(execute))
    monkeypatch.setattr(insert, "_insert", inserting(insert._insert))
    return seen


@committed
def test_a_thousand_with_duplicates_inside_and_against_rows(
    redis_server: Any, statements: list[str]
) -> None:
    """H35: 995 queued, 5 reported with their runs, in order, each new one with its message."""
    by_job_id = queued(MailRun, job_id="job 700")
    by_lock = claimed(MailRun, job_id="other", lock_key="lock 800")
    redis_server.flushall()
    statements.clear()
    rows = [{"job_id": f"job {n}", "lock_key": f"lock {n}", "note": f"{n}"} for n in range(1000)]
    rows[10]["job_id"] = "job 5"
    rows[999]["job_id"] = "job 6"
    rows[500]["lock_key"] = "lock 7"
    answers = MailRun.objects.bulk_enqueue(iter(rows))

    assert len(answers) == 1000
    refused = {n: answer for n, answer in enumerate(answers) if not answer}
    assert {n: (answer.reason, answer.run.pk) for n, answer in refused.items()} == {
        10: ("duplicate", answers[5].run.pk),
        999: ("duplicate", answers[6].run.pk),
        500: ("locked", answers[7].run.pk),
        700: ("duplicate", by_job_id.pk),
        800: ("locked", by_lock.pk),
    }
    assert refused[10].differing == ("note", "lock_key")
    assert all(answers[n].run.note == f"{n}" for n in range(1000) if n not in refused)
    assert sorted(messages(redis_server)) == sorted(
        f"lab-mailrun-{answer.run.pk}-0" for answer in answers if answer
    )
    assert len(messages(redis_server)) == 995
    assert len(statements) <= 8


@committed
def test_what_is_all_there_already_is_answered_in_a_few_statements(statements: list[str]) -> None:
    rows = [{"job_id": f"job {n}"} for n in range(300)]
    first = MailRun.objects.bulk_enqueue(rows)
    statements.clear()
    second = MailRun.objects.bulk_enqueue(rows)
    assert [answer.run.pk for answer in second] == [answer.run.pk for answer in first]
    assert {answer.reason for answer in second} == {"duplicate"}
    assert len(statements) <= 8


def test_of_rivals_in_one_call_the_first_is_created() -> None:
    rows = [
        {"job_id": "z", "lock_key": "K"},
        {"job_id": "a", "lock_key": "K"},
        {"job_id": "z", "lock_key": "L"},
        {"job_id": "b", "lock_key": "L"},
    ]
    answers = MailRun.objects.bulk_enqueue(rows)
    assert [answer.reason for answer in answers] == ["", "locked", "duplicate", ""]
    assert answers[1].run == answers[2].run == answers[0].run
    assert answers[2].differing == ("lock_key",)


def test_holders_whose_windows_are_over_are_released_together(statements: list[str]) -> None:
    old = [succeeded(MailRun, job_id=f"job {n}") for n in range(20)]
    sql("UPDATE lab_mailrun SET held_until = now() - interval '1 s'")
    statements.clear()
    answers = MailRun.objects.bulk_enqueue({"job_id": f"job {n}"} for n in range(20))
    assert all(answers)
    assert all(row_of(run)["released_at"] for run in old)
    assert len(statements) <= 6


def test_each_row_may_say_what_to_do_about_a_lock() -> None:
    run = claimed(MailRun, lock_key="K")
    answers = MailRun.objects.bulk_enqueue(
        [{"lock_key": "K"}, {"lock_key": "K", "if_locked": "skip"}], if_locked="rerun"
    )
    assert [(answer.reason, answer.rerun) for answer in answers] == [
        ("locked", True),
        ("locked", False),
    ]
    assert again(run).rerun_requested


def test_one_bad_row_refuses_all_before_the_first_is_written() -> None:
    with pytest.raises(InvalidRun, match="job_id must not be empty"):
        MailRun.objects.bulk_enqueue([{"job_id": "a"}, {"job_id": ""}])
    with pytest.raises(InvalidRun, match="no field 'nope'"):
        MailRun.objects.bulk_enqueue([{"job_id": "a"}, {"nope": 1}])
    assert not MailRun.objects.exists()


def test_nothing_is_asked_for_nothing(statements: list[str]) -> None:
    assert MailRun.objects.bulk_enqueue([]) == []
    assert statements == []


def test_keys_of_the_callers_own_and_of_the_database_mix() -> None:
    answers = MailRun.objects.bulk_enqueue([{"job_id": "a", "id": 10**6}, {"job_id": "b"}])
    assert all(answers)
    assert answers[0].run.pk == 10**6
    assert answers[1].run.pk != 10**6
    assert all(UuidRun.objects.bulk_enqueue([{}, {}]))


def test_a_statement_never_has_more_parameters_than_postgres_takes(
    monkeypatch: Any, statements: list[str]
) -> None:
    monkeypatch.setattr(insert, "PARAMETERS", 10 * len(MailRun._meta.concrete_fields))
    assert all(MailRun.objects.bulk_enqueue({} for _ in range(25)))
    assert statements.count("INSERT") == 3


@committed
def test_a_constraint_of_the_consumers_own_surfaces_from_a_bulk_too() -> None:
    with own_unique(MailRun, "note") as name:
        queued(MailRun, note="taken")
        with pytest.raises(IntegrityError, match=name), transaction.atomic():
            MailRun.objects.bulk_enqueue([{"note": "free"}, {"note": "taken"}])
    assert MailRun.objects.count() == 1


@committed
def test_each_created_run_is_announced_and_sent_once(redis_server: Any) -> None:
    seen: list[int] = []

    def receiver(run: Any, **_: Any) -> None:
        seen.append(run.pk)

    signals.run_enqueued.connect(receiver, sender=MailRun)
    try:
        with transaction.atomic():
            answers = MailRun.objects.bulk_enqueue({"job_id": f"{n % 7}"} for n in range(20))
            assert messages(redis_server) == []
    finally:
        signals.run_enqueued.disconnect(receiver, sender=MailRun)
    assert sorted(seen) == sorted(answer.run.pk for answer in answers if answer)
    assert len(messages(redis_server)) == 7


@committed
def test_a_bulk_gives_the_same_answers_with_and_without_hints(redis_server: Any) -> None:
    run = change(succeeded(MailRun, job_id="a"), "held_until = now() - interval '1 s'")
    queued(MailRun, job_id="b")
    rows = [{"job_id": "a"}, {"job_id": "b"}, {"job_id": "c"}]
    with override_settings(RUNCONTRACT={"FAST_PATH": False}):
        assert [bool(answer) for answer in MailRun.objects.bulk_enqueue(rows)] == [
            True,
            False,
            True,
        ]
    assert row_of(run)["released_at"] is not None
