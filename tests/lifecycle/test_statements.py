"""What the statements cost: HOT pulses, and an index for each look that is made all the time."""

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from runcontract.lifecycle import statements, transitions
from runcontract.lifecycle.database import execute
from tests.lab.models import MailRun, UuidRun
from tests.support.rows import many
from tests.support.runs import claimed, sql, table
from tests.support.wait import eventually

HISTORY = 10_000


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("redis_server")
def test_pulses_are_hot_updates() -> None:
    many(MailRun, 2_000, "succeeded")
    runs = [claimed(MailRun) for _ in range(20)]
    params = [[run.pk for run in runs], [run.lease for run in runs]]

    def updates() -> tuple[int, int]:
        sql("SELECT pg_stat_force_next_flush()")
        found = sql(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'lab_mailrun'"
        )
        return found[0][0], found[0][1]

    def share() -> float:
        before = updates()
        for _ in range(110):
            assert len(execute("default", statements.beat(table(MailRun)), params)) == 20
        eventually(lambda: updates()[0] - before[0] >= 2_200)
        all_of_them, hot = (new - old for new, old in zip(updates(), before, strict=True))
        assert all_of_them >= 2_200
        return float(hot / all_of_them)

    # An autovacuum's snapshot keeps old versions alive for a moment; an index would do it always.
    assert any(share() >= 0.95 for _ in range(4))


# Plans over a long history


@pytest.fixture
def history(db: None) -> None:
    """Many finished rows, some queued, a few running."""
    many(MailRun, HISTORY, "succeeded")
    sql("UPDATE lab_mailrun SET released_at = now() WHERE id %% 50 <> 0")
    sql(
        "INSERT INTO lab_mailrun (job_id, lock_key, lane, state, failure, lease, worker,"
        " fingerprint, stats, rerun_requested, cancel_requested, attempts, task, args, hook,"
        " progress, note, dispatched_at, heartbeat_at)"
        " SELECT 'active:' || n, 'K' || n, 'default',"
        " CASE WHEN n %% 100 = 0 THEN 'running' ELSE 'queued' END, '', 1, 'w' || n, '', '{}',"
        " false, false, 1, 'succeed', '{}', '', 0, '', now(),"
        " CASE WHEN n %% 100 = 0 THEN now() END FROM generate_series(1, 2000) AS n"
    )
    sql("ANALYZE lab_mailrun")


def plan(statement: str, *params: Any) -> list[dict[str, Any]]:
    """The nodes of the plan that a statement has with these values."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", params)
        found = cursor.fetchone()
    assert found is not None
    document = json.loads(found[0]) if isinstance(found[0], str) else found[0]
    return list(nodes(document[0]["Plan"]))


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", []):
        yield from nodes(inner)


LANES, SOON = ["default"], timedelta(seconds=30)
MAIL = table(MailRun)
LOOKS: dict[str, tuple[str, list[Any], str]] = {
    "claim": (statements.claim(MAIL), ["w", 7, 1], "lab_mailrun_pkey"),
    "claim from the journal": (
        statements.claim_waiting(MAIL),
        [["bulk", "default"], "w"],
        "lab_mailrun_queued",
    ),
    "beat": (statements.beat(MAIL), [[7, 8], [1, 1]], "lab_mailrun_pkey"),
    "still running": (statements.still_running(MAIL), [[7, 8]], ""),
    "held by": (statements.held_by(MAIL), [["w100"]], "lab_mailrun_by_worker"),
    "suspects": (statements.suspects(MAIL), [SOON, SOON], "lab_mailrun_by_worker"),
    "sweep unsent": (statements.sweep_unsent(MAIL), [LANES, 20], "lab_mailrun_queued"),
    "sweep lost": (
        statements.sweep_lost(MAIL),
        [LANES, "2024-01-01 00:00Z", 20],
        "lab_mailrun_queued",
    ),
    "release": (statements.release_windows(MAIL), [20], "lab_mailrun_held"),
    "holder of a job_id": (statements.holder_of_job_id(MAIL), ["many:7"], "lab_mailrun_job_id"),
    "holders of job_ids": (
        statements.holders_of_job_ids(MAIL),
        [["many:7", "active:8"]],
        "lab_mailrun_job_id",
    ),
    "holder of a lock": (statements.holder_of_lock(MAIL), ["K7"], "lab_mailrun_lock"),
    "holders of locks": (statements.holders_of_locks(MAIL), [["K7", "K8"]], "lab_mailrun_lock"),
}


@pytest.mark.usefixtures("history")
def test_no_look_reads_the_history() -> None:
    for name, (statement, params, index) in LOOKS.items():
        found = plan(statement, *params)
        scans = [node for node in found if node.get("Relation Name") == "lab_mailrun"]
        assert not [node for node in scans if node["Node Type"] == "Seq Scan"], (name, found)
        used = {node["Index Name"] for node in found if "Index Name" in node}
        assert not index or index in used, (name, used)


@pytest.mark.usefixtures("history")
def test_a_claim_from_the_journal_does_not_sort_the_backlog() -> None:
    sql(
        "UPDATE lab_mailrun SET state = 'queued', finished_at = NULL, held_until = NULL,"
        " released_at = NULL, dispatched_at = now() - id * interval '1 ms'"
        " WHERE state = 'succeeded'"
    )
    sql("ANALYZE lab_mailrun")
    found = plan(statements.claim_waiting(MAIL), ["bulk", "default"], "w")
    assert "Sort" not in {node["Node Type"] for node in found}
    assert all(node["Plan Rows"] <= 1 for node in found if node["Node Type"] == "Limit")


@pytest.mark.django_db
def test_a_heartbeat_takes_keys_of_either_kind_and_size() -> None:
    keys = [uuid.uuid4(), uuid.UUID(int=1)]
    assert execute("default", statements.beat(table(UuidRun)), [keys, [1, 2**62]]) == []
    for some in ([1], [2**31], [2**62, -5]):
        assert execute("default", statements.beat(MAIL), [some, [1] * len(some)]) == []


@pytest.mark.django_db
def test_the_same_statement_is_made_once_for_a_table() -> None:
    assert statements.claim(MAIL) is statements.claim(table(MailRun))
    assert transitions.claim(MAIL, 1, 0, "w") is None
