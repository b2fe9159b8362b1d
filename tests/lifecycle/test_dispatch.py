"""A Redis that is down, frozen, read-only or full never hurts whoever enqueues."""

import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from runcontract.lifecycle import dispatch as module
from runcontract.lifecycle.dispatch import dispatch
from runcontract.lifecycle.sweep import sweep_lost
from runcontract.testing.servers import Valkey
from runcontract.transport import Parcel, breaker_of, connection
from tests.lab.models import MailRun
from tests.settings import RQ_QUEUES
from tests.support.runs import messages, queued, row_of, sql, table
from tests.support.servers import hanging, out_of_memory, read_only

pytestmark = [pytest.mark.django_db(transaction=True)]

LIMIT = 0.2
SLACK = 0.35
"""What a busy machine may take besides; each wait is measured apart from the statements."""


@pytest.fixture(autouse=True)
def new_breaker() -> Iterator[None]:
    """No test finds a server left alone because of another."""
    connection._breakers.clear()
    yield
    connection._breakers.clear()


@contextmanager
def stopped(valkey: Valkey) -> Iterator[None]:
    valkey.stop()
    try:
        yield
    finally:
        valkey.start()


@pytest.fixture(params=["stopped", "hanging", "read only", "out of memory"])
def trouble(request: Any, valkey: Valkey, redis_server: Any) -> AbstractContextManager[None]:
    kinds: dict[str, Any] = {
        "stopped": lambda: stopped(valkey),
        "hanging": lambda: hanging(valkey),
        "read only": lambda: read_only(redis_server),
        "out of memory": lambda: out_of_memory(redis_server),
    }
    made: AbstractContextManager[None] = kinds[request.param]()
    return made


def test_the_caller_neither_sees_it_nor_waits_for_it(trouble: Any, redis_server: Any) -> None:
    """H08: other callbacks run, the row stays, the sweep sends it."""
    seen: list[str] = []
    with trouble:
        began = time.monotonic()
        with transaction.atomic():
            transaction.on_commit(lambda: seen.append("before"))
            run = queued(MailRun, job_id="a")
            transaction.on_commit(lambda: seen.append("after"))
            assert MailRun.objects.enqueue(job_id="a").reason == "duplicate"
        assert time.monotonic() - began < LIMIT + SLACK
        assert seen == ["before", "after"]

        began = time.monotonic()
        for number in range(10):
            assert MailRun.objects.enqueue(job_id=f"{number}")
        assert time.monotonic() - began < SLACK, "Redis was not left alone after it failed"
    assert row_of(run)["state"] == "queued"
    assert messages(redis_server) == []

    connection._breakers.clear()
    assert sweep_lost(table(MailRun), timedelta(0)) == 11
    assert len(messages(redis_server)) == 11


def test_a_server_that_failed_is_left_alone_for_a_while_and_then_tried(
    valkey: Valkey, redis_server: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(connection, "LEFT_ALONE", 0.0)
    with stopped(valkey):
        queued(MailRun)
    assert queued(MailRun)
    assert len(messages(redis_server)) == 1
    assert not breaker_of("default").open


@pytest.mark.usefixtures("redis_server")
def test_a_lane_that_is_named_no_more_does_not_hold_up_the_others(redis_server: Any) -> None:
    both = [Parcel("gone", "lab-mailrun-1-0"), Parcel("bulk", "lab-mailrun-2-0")]
    assert dispatch(both) is True
    assert messages(redis_server, "bulk") == ["lab-mailrun-2-0"]
    assert messages(redis_server, "gone") == []


def test_a_dispatch_that_cannot_be_said_at_all_is_logged(caplog: Any) -> None:
    broken = {**RQ_QUEUES, "default": {"URL": "nonsense://"}}
    with override_settings(RQ_QUEUES=broken), caplog.at_level(logging.ERROR):
        assert dispatch([Parcel("default", "lab-mailrun-1-0")]) is False
    assert "the sweep will send its runs" in caplog.text


def test_a_message_carries_a_hint_only_where_hints_are_on() -> None:
    made = module.parcel(table(MailRun), 1, 2, "bulk", "a")
    assert (made.lane, made.address) == ("bulk", "lab-mailrun-1-2")
    assert (made.hint, made.hold) == ("runcontract:held:lab.mailrun:a", timedelta(hours=24))
    with override_settings(RUNCONTRACT={"FAST_PATH": False}):
        assert module.parcel(table(MailRun), 1, 2, "bulk", "a").hint is None


def test_nothing_is_registered_under_manual_transactions() -> None:
    transaction.set_autocommit(False)
    try:
        module.dispatch_on_commit("default", [Parcel("default", "lab-mailrun-1-0")])
        assert not module.can_dispatch_on_commit("default")
        sql("SELECT 1")
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
