"""`policy.atomic`: the effects in Postgres are exactly once, whatever dies in between."""

import os
import signal

import pytest
from django.db import transaction

from tests.lab.models import AtomicRun, Order
from tests.support.lab import effects, ended
from tests.support.processes import is_alive
from tests.support.servers import cut_sessions, waiting_for_locks
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])


@pytest.mark.parametrize("blow", ["kill", "cut"])
def test_death_between_perform_and_commit_leaves_one_effect(
    redis_server, start_worker, start_scheduler, blow
) -> None:
    """The settle waits for the test's lock, so that the blow falls before the commit."""
    args = {"name": blow, "n": 1}
    run = AtomicRun.objects.enqueue(job_id=blow, task="make_order", args=args).run
    settings = {"ON_LOST": "retry", "STALE_AFTER": 30}
    worker = start_worker("default", settings=settings)
    eventually(lambda: effects(run))
    with transaction.atomic():
        AtomicRun.objects.select_for_update().get(pk=run.pk)
        eventually(lambda: waiting_for_locks("query LIKE '%succeeded%'"))
        assert not Order.objects.exists()
        if blow == "kill":
            (child,) = worker.children()
            os.kill(child, signal.SIGKILL)
            eventually(lambda: not is_alive(child))
        else:
            assert cut_sessions(where="wait_event_type = 'Lock'") == 1
            worker.wait_for("attempt 1 failed")
    scheduler = start_scheduler(settings=settings)
    assert ended(run).state == "succeeded", run.last_error
    assert [order.name for order in Order.objects.all()] == [blow]
    assert (run.attempts, len(effects(run))) == (2, 2)
    worker.stop()
    scheduler.stop()
