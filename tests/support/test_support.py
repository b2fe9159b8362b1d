"""The helpers themselves: a helper that cannot fail would hide every defect."""

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from tests.support.processes import children_of, descendants_of, is_alive
from tests.support.race import race, values
from tests.support.wait import always, eventually


def test_eventually_gives_the_first_true_answer() -> None:
    answers = iter([0, None, 3])
    assert eventually(lambda: next(answers), every=0) == 3


def test_eventually_fails_with_the_last_answer() -> None:
    with pytest.raises(AssertionError, match=r"Not within 0\.05 s; the last answer was: 0"):
        eventually(lambda: 0, 0.05)


def test_eventually_passes_other_errors_on() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0)


def test_always_fails_at_the_first_false_answer() -> None:
    answers = iter([True, True, False])
    with pytest.raises(AssertionError, match="No longer so"):
        always(lambda: next(answers), 5, every=0)


@pytest.mark.django_db(transaction=True)
def test_racers_have_connections_of_their_own_and_close_them() -> None:
    def backend() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    pids = values(race(*[backend] * 8))
    assert len({*pids, backend()}) == 9

    def alive() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)", [pids])
            return int(cursor.fetchone()[0])

    eventually(lambda: alive() == 0)


@pytest.mark.django_db(transaction=True)
def test_racers_see_what_others_have_committed_and_tell_their_errors() -> None:
    outcomes = race(*[lambda: Group.objects.create(name="one")] * 5)
    assert sum(outcome.error is None for outcome in outcomes) == 1
    with pytest.raises(Exception, match="duplicate key"):
        values(outcomes)


@pytest.mark.django_db(transaction=True)
def test_racer_that_cannot_connect_holds_nobody_up() -> None:
    outcomes = race(lambda: 1, lambda: 2, using=["nowhere"], timeout=20)
    assert all(outcome.error for outcome in outcomes)


def test_command_is_started_and_ended_with_its_descendants(start) -> None:
    command = start("shell", "-v", "0", "-c", TREE)
    command.wait_for("started")
    assert len(command.children()) == 1
    left = descendants_of(command.pid)
    assert len(left) == 2
    assert children_of(left[0]) == left[1:]
    command.discard()
    assert not any(is_alive(pid) for pid in left)


def test_command_that_ends_early_is_said_at_once_with_its_log(start) -> None:
    command = start("no_such_command")
    with pytest.raises(AssertionError, match="Unknown command"):
        command.wait_for("ready")


def test_command_works_on_the_databases_of_this_test(start) -> None:
    Group.objects.create(name="seen")
    text = "from django.contrib.auth.models import Group; print(Group.objects.get().name)"
    command = start("shell", "-v", "0", "-c", text)
    assert command.wait() == 0, command.log
    assert "seen" in command.log


TREE = """
import subprocess, time
subprocess.Popen(["sh", "-c", "sleep 60; true"])
time.sleep(0.3)
print("started", flush=True)
time.sleep(60)
"""
