"""Statements that reach Postgres, and connections that a job left in a strange state."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import (
    OperationalError,
    ProgrammingError,
    connection,
    connections,
    transaction,
)
from django.db.transaction import TransactionManagementError

from runcontract.lifecycle.database import (
    answers,
    as_utc,
    cancel_statements,
    close_before_fork,
    database_now,
    execute,
    forget_connections,
    tidy_connections,
    write_alias,
)
from runcontract.lifecycle.table import quote, table_at, table_of
from tests.lab.models import MailRun, OtherRun
from tests.support.runs import queued, sql

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def clean_connection() -> Iterator[None]:
    yield
    connection.in_atomic_block = connection.closed_in_transaction = False
    connection.close()


def backend() -> int:
    return int(execute("default", "SELECT pg_backend_pid()")[0][0])


def test_an_error_is_one_of_djangos_and_marks_the_transaction() -> None:
    with pytest.raises(ProgrammingError):
        execute("default", "SELECT nonsense")
    with transaction.atomic():
        with pytest.raises(ProgrammingError):
            execute("default", "SELECT nonsense")
        with pytest.raises(TransactionManagementError):
            execute("default", "SELECT 1")
    assert execute("default", "SELECT 1") == [(1,)]


def test_a_statement_without_rows_returns_none_and_percents_are_kept() -> None:
    assert execute("default", "SET work_mem = '5MB'") == []
    assert execute("default", "SELECT '100%%', %s", ["x"]) == [("100%", "x")]


def test_statements_are_prepared_unless_a_pooler_stands_between(monkeypatch: Any) -> None:
    def prepared() -> list[Any]:
        return sql("SELECT statement FROM pg_prepared_statements WHERE statement LIKE 'SELECT 4%%'")

    execute("default", "SELECT 40 + %s", [2])
    assert prepared() == [("SELECT 40 + $1",)]
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    execute("default", "SELECT 41 + %s", [2])
    assert prepared() == [("SELECT 40 + $1",)]
    assert connection.connection.prepare_threshold is None, "Django's own cursors prepare nothing"


def test_times_are_the_databases_and_aware() -> None:
    now = database_now("default")
    assert now.utcoffset() is not None
    assert abs((now - sql("SELECT now()")[0][0]).total_seconds()) < 5
    assert as_utc(now.replace(tzinfo=None)) == now


def test_a_table_is_written_where_the_router_says() -> None:
    assert write_alias(MailRun) == "default"
    assert write_alias(OtherRun) == "jobs"


@pytest.mark.parametrize("how", ["atomic", "autocommit", "begin", "broken"])
def test_what_a_job_left_open_is_closed_and_the_next_statement_works(how: str) -> None:
    before = backend()
    if how == "atomic":
        transaction.atomic().__enter__()
        sql("SELECT 1")
    elif how == "autocommit":
        transaction.set_autocommit(False)
        sql("SELECT 1")
    elif how == "begin":
        sql("BEGIN")
    else:
        with pytest.raises(ProgrammingError):
            sql("SELECT nonsense")
    tidy_connections(idle=False)
    assert not connection.in_atomic_block
    assert backend() != before
    assert connection.get_autocommit()
    with transaction.atomic():
        queued(MailRun)
    assert MailRun.objects.count() == 1


def test_a_connection_in_order_is_kept_by_a_busy_worker_and_one_that_is_closed_stays_so() -> None:
    before = backend()
    tidy_connections(idle=False)
    assert backend() == before
    forget_connections()
    tidy_connections(idle=False)
    assert connection.connection is None


def test_an_idle_worker_closes_what_is_too_old(monkeypatch: Any) -> None:
    before = backend()
    connection.close_at = time.monotonic() - 1
    tidy_connections(idle=True)
    assert connection.connection is None
    assert backend() != before


def test_forgetting_survives_whatever_closing_does(monkeypatch: Any) -> None:
    backend()
    raw = connection.connection

    def refuse() -> None:
        raise OperationalError("already gone")

    monkeypatch.setattr(connection, "_close", refuse)
    forget_connections()
    assert connection.connection is None
    monkeypatch.undo()
    raw.close()
    assert answers("default")


def test_a_statement_that_is_abandoned_is_ended_in_the_server() -> None:
    backend()
    connection.connection.pgconn.send_query(b"SELECT pg_sleep(60)")
    began = time.monotonic()
    cancel_statements()
    while connection.connection.pgconn.is_busy():
        connection.connection.pgconn.consume_input()
        assert time.monotonic() - began < 30
    forget_connections()
    cancel_statements()
    assert connection.connection is None


def test_nothing_is_open_before_a_fork() -> None:
    backend()
    close_before_fork()
    assert all(item.connection is None for item in connections.all(initialized_only=True))


def test_a_name_is_quoted_as_django_quotes_it_and_safe_beside_placeholders() -> None:
    assert quote("lab_mailrun") == '"lab_mailrun"'
    assert quote('"schema"."table"') == '"schema"."table"'
    assert quote("50%") == '"50%%"'
    for model in (MailRun, OtherRun):
        assert quote(model._meta.db_table) == connection.ops.quote_name(model._meta.db_table)


def test_only_a_run_model_is_a_table() -> None:
    assert table_at("lab.mailrun") is table_of(MailRun)
    for label in ("lab.order", "lab.nothing", "nothing.at_all", "nonsense", "auth.user"):
        assert table_at(label) is None
