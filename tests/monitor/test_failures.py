"""One list of the runs of every table, a page at a time."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, connections
from django.test.utils import CaptureQueriesContext

from runcontract.lifecycle.table import table_of
from runcontract.monitor.counts import CAP, counts, in_words
from runcontract.monitor.failures import ERROR_MESSAGE, ERROR_TYPE, Page, page
from runcontract.monitor.listings import (
    FAILED,
    LISTINGS,
    QUEUED,
    RUNNING,
    SUCCEEDED,
    WAITING,
    Source,
)
from runcontract.monitor.positions import Position
from runcontract.monitor.words import span_in_words
from runcontract.registry import run_models
from tests.lab.models import MailRun, OtherRun, PassRun, SyncRun, UuidRun
from tests.support.rows import NOON, many, row

pytestmark = pytest.mark.django_db(databases=["default", "jobs"])


def sources(*models: Any) -> list[Source]:
    """These tables, or all, and every row of them."""
    return [Source(table_of(model), model._base_manager.all()) for model in models or run_models()]


def seen(found: Page) -> list[Any]:
    return [(each.label, each.pk) for each in found.rows]


def in_order(*runs: Any) -> list[Any]:
    return [(run._meta.label_lower, run.pk) for run in runs]


def turned(which: list[Source], listing: Any, limit: int) -> list[Any]:
    """All rows of a listing, page by page."""
    found: list[Any] = []
    after = None
    while True:
        got = page(which, listing, after, limit)
        found += seen(got)
        if not got.rest:
            return found
        after = Position.parse(got.rest, which)
        assert after is not None


def test_tables_of_both_databases_are_one_list_newest_first() -> None:
    oldest = row(OtherRun, minute=1)
    middle = row(MailRun, minute=2)
    newest = row(OtherRun, minute=3)
    row(MailRun, "succeeded", minute=4)
    assert seen(page(sources(), FAILED)) == in_order(newest, middle, oldest)


def test_a_row_has_what_a_person_needs() -> None:
    run = row(SyncRun, job_id="invoice:42", attempts=3, minute=5)
    (found,) = page(sources(), FAILED).rows
    assert (found.label, found.pk, found.job_id) == ("lab.syncrun", run.pk, "invoice:42")
    assert (found.failure, found.attempts) == ("permanent", 3)
    assert (found.error_type, found.error_message) == ("ValueError", "no")
    assert found.since == run.finished_at
    assert found.age == found.now - run.finished_at > timedelta(0)


def test_a_model_without_a_counter_has_no_attempts() -> None:
    row(PassRun)
    row(MailRun, attempts=2)
    assert {each.attempts for each in page(sources(), FAILED).rows} == {None, 2}


def test_two_models_without_a_counter_come_first_and_still_fit_the_others() -> None:
    """A UNION of NULL and NULL is text, which no number may join."""
    which = [*sources(PassRun), *sources(PassRun), *sources(MailRun)]
    row(MailRun, attempts=7)
    assert [each.attempts for each in page(which, FAILED).rows] == [7]


def test_each_listing_has_its_own_runs_and_its_own_order() -> None:
    later = NOON + timedelta(days=36_500)
    running = row(MailRun, "running", minute=2), row(SyncRun, "running", minute=1)
    queued = row(MailRun, "queued", minute=2), row(PassRun, "queued", minute=1)
    due = row(SyncRun, "queued", minute=3, next_retry_at=NOON)
    waiting = row(MailRun, "queued", minute=1, next_retry_at=later)
    sooner = row(MailRun, "queued", minute=2, next_retry_at=later - timedelta(days=1))
    assert seen(page(sources(), RUNNING)) == in_order(*reversed(running))
    assert seen(page(sources(), QUEUED)) == in_order(*reversed(queued), due)
    assert seen(page(sources(), WAITING)) == in_order(sooner, waiting)
    assert page(sources(), WAITING).rows[1].due == later


def test_a_table_that_cannot_wait_is_not_asked() -> None:
    assert page(sources(PassRun), WAITING) == Page([])


@pytest.mark.parametrize("name", ["failed", "running"])
def test_pages_show_every_row_once_even_where_moments_are_equal(name: str) -> None:
    models = [MailRun, SyncRun, UuidRun, PassRun, OtherRun]
    made = [row(model, name, minute=n // 3) for model in models for n in range(6)]
    whole = seen(page(sources(), LISTINGS[name], limit=100))
    assert sorted(map(str, whole)) == sorted(map(str, in_order(*made)))
    for limit in (3, 7, 30):
        assert turned(sources(), LISTINGS[name], limit) == whole


def test_a_row_that_fails_between_two_pages_moves_no_other() -> None:
    runs = [row(MailRun, minute=n) for n in range(4)]
    first = page(sources(), FAILED, limit=2)
    row(MailRun, minute=9)
    after = Position.parse(first.rest, sources())
    assert seen(page(sources(), FAILED, after, limit=2)) == in_order(runs[1], runs[0])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "~~",
        "nonsense",
        "2026-01-01T12:00:00+00:00~lab.nothing~1",
        "2026-01-01T12:00:00+00:00~lab.mailrun~one",
        "2026-01-01T12:00:00+00:00~lab.mailrun~6f9619ff-8b86-d011-b42d-00cf4fc964ff",
        "2026-01-01T12:00:00+00:00~lab.mailrun~99999999999999999999999",
        "2026-01-01T12:00:00+00:00~lab.uuidrun~1",
        "2026-01-01T12:00:00~lab.mailrun~1",
        "2026-01-01T12:00:00+00:00~lab.mailrun~1~2",
    ],
)
def test_a_position_that_somebody_made_up_is_the_first_page(text: str) -> None:
    assert Position.parse(text, sources()) is None


def test_a_long_error_is_cut_in_postgres() -> None:
    row(MailRun, last_error={"type": "T" * 10_000, "message": "m" * 1_000_000})
    with CaptureQueriesContext(connection) as statements:
        (found,) = page(sources(MailRun), FAILED).rows
    assert len(found.error_type) == ERROR_TYPE
    assert len(found.error_message) == ERROR_MESSAGE
    assert len(statements) == 1


@pytest.mark.parametrize("error", [None, {}, [], "text", {"type": None, "message": {"a": 1}}])
def test_an_error_of_a_strange_shape_is_still_a_row(error: Any) -> None:
    row(MailRun, last_error=error)
    assert len(page(sources(), FAILED).rows) == 1


def test_a_database_that_does_not_answer_is_told_and_the_others_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = row(MailRun)

    def away(*_: Any, **__: Any) -> Any:
        raise OperationalError

    monkeypatch.setattr(connections["jobs"], "cursor", away)
    monkeypatch.setattr(connections["jobs"], "chunked_cursor", away)
    found = page(sources(), FAILED)
    assert (seen(found), found.silent) == (in_order(run), ("jobs",))
    assert counts(sources())["lab.mailrun", "failed"] == 1


def test_one_statement_for_each_database_however_many_rows_and_tables() -> None:
    for model in (MailRun, SyncRun, OtherRun):
        for n in range(20):
            row(model, minute=n)
    with CaptureQueriesContext(connection) as here:
        page(sources(), FAILED)
        counts(sources())
    with CaptureQueriesContext(connections["jobs"]) as there:
        page(sources(), FAILED)
        counts(sources())
    assert (len(here), len(there)) == (2, 2)


def test_fifty_thousand_failures_are_read_no_further_than_the_page() -> None:
    """Each branch reads the top of its index, on the first page and on one far down."""
    for model in (MailRun, SyncRun):
        many(model, 50_000)
    which = sources(MailRun, SyncRun)
    deep = Position(NOON + timedelta(seconds=25_000), "lab.mailrun", 1)
    for after in (None, deep):
        with CaptureQueriesContext(connection) as statements:
            assert len(page(which, FAILED, after, limit=50).rows) == 50
        scans = list(_scans(_explained(statements.captured_queries[0]["sql"])))
        assert {scan["Relation Name"] for scan in scans} == {"lab_mailrun", "lab_syncrun"}
        for scan in scans:
            assert scan["Index Name"].endswith("_failures"), scan
            assert scan["Actual Rows"] <= 53, scan


def test_a_page_of_succeeded_runs_reads_the_top_of_an_index_too() -> None:
    many(MailRun, 20_000, "succeeded")
    row(MailRun, "succeeded", minute=9_999, released_at=NOON)
    with CaptureQueriesContext(connection) as statements:
        found = page(sources(MailRun), SUCCEEDED, limit=50)
    assert [each.job_id for each in found.rows[:2]] == ["many:20000", "many:19999"]
    (scan,) = _scans(_explained(statements.captured_queries[0]["sql"]))
    assert scan["Index Name"] == "lab_mailrun_held"
    assert scan["Actual Rows"] <= 53


def test_counts_stop_at_a_thousand() -> None:
    many(MailRun, 3 * CAP)
    row(SyncRun)
    found = counts(sources())
    assert found["lab.mailrun", "failed"] == CAP + 1
    assert found["lab.syncrun", "failed"] == 1
    assert found["lab.syncrun", "running"] == 0
    assert ("lab.passrun", "waiting") not in found
    assert in_words([CAP, 1]) == "1000+"
    assert in_words([CAP, 0]) == "1000"


def test_nobodys_rows_are_no_rows() -> None:
    row(MailRun)
    nobody = [Source(table_of(MailRun), MailRun.objects.none())]
    assert page(nobody, FAILED) == page([], FAILED) == Page([])
    assert counts(nobody) == counts([]) == {}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "a moment"),
        (0.9, "a moment"),
        (1, "1 second"),
        (59, "59 seconds"),
        (119, "1 minute"),
        (7_200, "2 hours"),
        (86_400 * 400, "400 days"),
    ],
)
def test_a_span_is_told_by_its_largest_unit(seconds: float, words: str) -> None:
    assert span_in_words(timedelta(seconds=seconds)) == words


def _explained(sql: str) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sql)
        plan: Any = cursor.fetchone()[0]
    return (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]


def _scans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes of a plan that read a table."""
    if "Relation Name" in node:
        yield node
    for child in node.get("Plans", []):
        yield from _scans(child)
