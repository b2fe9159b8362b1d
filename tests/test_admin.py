"""The failure page and RunContractAdmin: who sees what, and what each redo met."""

import re
import threading
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.contrib.admin import ModelAdmin, site
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runcontract.admin import RunContractAdmin
from runcontract.admin.moves import MESSAGES
from runcontract.lifecycle.enqueue import Enqueued
from runcontract.monitor.failures import PAGE as ROWS
from tests.lab.models import MailRun, OtherRun, PassRun, SyncRun, UuidRun
from tests.support.rows import NOON, row

pytestmark = pytest.mark.django_db(databases=["default", "jobs"])

LIST = reverse("admin:runcontract_failure_changelist")
REDO = reverse("admin:runcontract_failure_redo")
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "{{ settings.SECRET_KEY }}{% debug %}",
    "{0.__class__} {} %s %(x)s %",
    "javascript:alert(1)",
    '=HYPERLINK("http://x","y")',
    "\t\r+1",
    "\u200f" * 90 + "\u202e",
    "\x1b[31mred\x1b[0m",
    "é:/?#&=~..",
]


@pytest.fixture
def staff(client: Client) -> Callable[..., Client]:
    """A client whose user may do only these things: `staff("view_mailrun", …)`."""

    def signed_in(*codenames: str) -> Client:
        user = User.objects.create_user("staff", is_staff=True)
        for codename in codenames:
            user.user_permissions.add(Permission.objects.get(codename=codename))
        client.force_login(user)
        return client

    return signed_in


def value(run: Any) -> str:
    return f"{run._meta.label_lower}:{run.pk}"


def redo(client: Client, *runs: Any, query: str = "") -> list[str]:
    """Press redo on these runs; what the page then says."""
    values = [each if isinstance(each, str) else value(each) for each in runs]
    return said(client.post(f"{REDO}{query}", {"run": values}, follow=True))


def said(response: Any) -> list[str]:
    """The messages of a page, as text."""
    assert response.status_code == 200
    html = response.content.decode()
    found = re.findall(r'<li class="(?:success|warning|error|info)">(.*?)</li>', html, re.DOTALL)
    return [unescape(re.sub(r"</?bdi>", "", each)).strip() for each in found]


def states(*runs: Any) -> list[str]:
    for run in runs:
        run.refresh_from_db()
    return [run.state for run in runs]


# Who sees what


def test_it_stands_in_the_admins_index(admin_client: Client) -> None:
    html = admin_client.get(reverse("admin:index")).content.decode()
    assert f'<a href="{LIST}">Failures</a>' in html
    assert "Runs" in html


def test_all_tables_are_merged_and_each_row_leads_to_its_own_page(admin_client: Client) -> None:
    runs = [row(model, job_id=f"a b/{n}") for n, model in enumerate([MailRun, OtherRun, UuidRun])]
    html = admin_client.get(LIST).content.decode()
    for run in runs:
        name = run._meta.model_name
        assert f'href="/admin/lab/{name}/{str(run.pk).replace("_", "_5F")}/change/"' in html
        assert f"lab / {run._meta.verbose_name}" in html
        assert f">{run.job_id}</bdi>" in html


def test_runs_of_a_model_that_one_may_not_view_are_not_there(staff: Any) -> None:
    row(MailRun, job_id="mine")
    row(SyncRun, job_id="theirs")
    html = staff("view_mailrun").get(LIST).content.decode()
    assert "mine" in html
    assert "theirs" not in html
    assert "sync run" not in html


def test_without_any_permission_there_is_no_page(staff: Any) -> None:
    client = staff()
    assert client.get(LIST).status_code == 403
    assert client.post(REDO, {"run": "lab.mailrun:1"}).status_code == 403
    assert LIST not in client.get(reverse("admin:index")).content.decode()


def test_the_pages_own_permission_opens_an_empty_page(staff: Any) -> None:
    row(MailRun, job_id="theirs")
    html = staff("view_failure").get(LIST).content.decode()
    assert "No failed runs." in html
    assert "theirs" not in html


def test_nobody_gets_in_without_signing_in(client: Client) -> None:
    for address in (LIST, REDO):
        assert client.get(address).status_code == 302


def test_a_consumers_queryset_limits_the_rows(staff: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = row(MailRun, job_id="mine"), row(MailRun, job_id="theirs")
    own = site.get_model_admin(MailRun)
    monkeypatch.setattr(own, "get_queryset", lambda request: MailRun.objects.filter(job_id="mine"))
    client = staff("view_mailrun", "change_mailrun")
    assert "theirs" not in client.get(LIST).content.decode()
    assert f"Mail run {mine.job_id}: queued again." in redo(client, mine, theirs)
    assert states(mine, theirs) == ["queued", "failed"]


def test_a_model_that_is_not_in_the_admin_is_listed_by_djangos_permissions(
    staff: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry: Any = site._registry
    monkeypatch.delitem(registry, MailRun)
    run = row(MailRun, job_id="mine")
    client = staff("view_mailrun")
    html = client.get(LIST).content.decode()
    assert ">mine</bdi>" in html
    assert "/lab/mailrun/" not in html
    assert redo(client, run) == ["Mail run mine: you may not change it."]


def test_who_may_only_view_cannot_redo(staff: Any) -> None:
    run = row(MailRun, job_id="mine")
    client = staff("view_mailrun")
    assert "Redo the selected" not in client.get(LIST).content.decode()
    assert redo(client, run) == ["Mail run mine: you may not change it."]
    assert states(run) == ["failed"]
    assert not LogEntry.objects.exists()


def test_permission_for_one_run_is_asked_of_the_consumers_admin(
    staff: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    yes, no = row(MailRun, job_id="yes"), row(MailRun, job_id="no")
    own = site.get_model_admin(MailRun)
    may = staticmethod(lambda request, obj=None: obj is None or obj.job_id == "yes")
    monkeypatch.setattr(own, "has_change_permission", may)
    client = staff("view_mailrun", "change_mailrun")
    assert set(redo(client, yes, no)) == {
        "Mail run yes: queued again.",
        "Mail run no: you may not change it.",
    }


# GET changes nothing, POST needs its token


def test_get_on_the_redo_address_is_refused(admin_client: Client) -> None:
    run = row(MailRun)
    assert admin_client.get(REDO, {"run": value(run)}).status_code == 405
    assert states(run) == ["failed"]


def test_post_on_the_list_is_refused(admin_client: Client) -> None:
    assert admin_client.post(LIST, {"run": "lab.mailrun:1"}).status_code == 405


def test_without_a_csrf_token_nothing_is_done(admin_user: User) -> None:
    run = row(MailRun)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(admin_user)
    assert strict.post(REDO, {"run": value(run)}).status_code == 403
    assert states(run) == ["failed"]
    html = strict.get(LIST).content.decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', html)
    assert token
    body = {"run": value(run), "csrfmiddlewaretoken": token[1]}
    assert strict.post(REDO, body).status_code == 302
    assert states(run) == ["queued"]


# What each redo met


def test_each_run_tells_what_it_met(admin_client: Client) -> None:
    good = row(MailRun, job_id="good", attempts=5)
    locked = row(SyncRun, job_id="locked", lock_key="k")
    row(SyncRun, "running", job_id="holder", lock_key="k")
    held = row(MailRun, job_id="held", released_at=NOON)
    other = row(MailRun, "succeeded", job_id="held", held_until=NOON.replace(year=2999))
    plain = row(PassRun, job_id="plain")
    there = row(OtherRun, job_id="there")
    moved = row(MailRun, "running", job_id="moved")
    gone = row(MailRun)
    gone_key = gone.pk
    gone.delete()
    told = redo(admin_client, good, locked, held, plain, there, moved, f"lab.mailrun:{gone_key}")
    assert sorted(told) == sorted(
        [
            "Mail run good: queued again.",
            "Sync run locked: not queued, for its lock is held by holder, which is running.",
            f"Mail run held: not queued, for its job_id is held by run {other.pk}, "
            "which is succeeded.",
            "Pass run plain: queued again.",
            "Other run there: queued again.",
            "Mail run moved: it is already running; nothing was done.",
            f"Mail run {gone_key}: it is gone; nothing was done.",
        ]
    )
    assert states(good, locked, held, there, moved) == [
        "queued",
        "failed",
        "failed",
        "queued",
        "running",
    ]
    assert good.attempts == 0
    assert PassRun.objects.filter(job_id="plain", state="queued").count() == 1


def test_each_row_is_one_line_of_the_admin_log(admin_client: Client, admin_user: User) -> None:
    good = row(MailRun, job_id="good")
    locked = row(OtherRun, job_id="locked", lock_key="k")
    row(OtherRun, "queued", job_id="holder", lock_key="k")
    redo(admin_client, good, locked)
    lines = {
        (line.object_repr, line.change_message, line.user_id, line.object_id)
        for line in LogEntry.objects.all()
    }
    refused = "Redo: not queued, for its lock is held by holder, which is queued."
    assert lines == {
        ("good", "Redo: queued again.", admin_user.pk, str(good.pk)),
        ("locked", refused, admin_user.pk, str(locked.pk)),
    }
    history = admin_client.get(reverse("admin:lab_mailrun_history", args=[good.pk]))
    assert "Redo: queued again." in history.content.decode()


def test_a_second_press_says_that_it_is_already_queued(admin_client: Client) -> None:
    run, plain = row(MailRun, job_id="twice"), row(PassRun, job_id="plain")
    redo(admin_client, run, plain)
    again = PassRun.objects.get(job_id="plain", state="queued")
    assert redo(admin_client, run, plain) == [
        "Mail run twice: it is already queued; nothing was done.",
        f"Pass run plain: not queued, for its job_id is held by run {again.pk}, which is queued.",
    ]
    assert PassRun.objects.filter(job_id="plain").count() == 2


@pytest.mark.django_db(transaction=True, databases=["default", "jobs"])
def test_two_presses_at_once_queue_each_run_once(admin_user: User) -> None:
    runs = [row(MailRun), row(PassRun)]
    barrier, told = threading.Barrier(2), []

    def press() -> None:
        client = Client()
        client.force_login(admin_user)
        barrier.wait(10)
        told.extend(redo(client, *runs))
        connections.close_all()

    threads = [threading.Thread(target=press) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len([text for text in told if text.endswith("queued again.")]) == 2
    assert len(told) == 4
    assert PassRun.objects.filter(state="queued").count() == 1


def test_many_that_went_well_are_one_message_and_each_refusal_its_own(
    admin_client: Client,
) -> None:
    runs = [row(MailRun, job_id=f"r{n}") for n in range(MESSAGES + 1)]
    moved = row(MailRun, "succeeded", job_id="moved")
    assert redo(admin_client, *runs, moved) == [
        "Mail run moved: it is already succeeded; nothing was done.",
        f"{MESSAGES + 1} runs: queued again.",
    ]
    assert LogEntry.objects.count() == MESSAGES + 2


def test_a_consumers_redo_that_raises_holds_up_no_other(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, good = row(SyncRun, job_id="broken"), row(MailRun, job_id="good")

    def breaks(self: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT no_such_function()")

    monkeypatch.setattr(SyncRun, "redo", breaks)
    assert set(redo(admin_client, broken, good)) == {
        "Sync run broken: nothing was done, for ProgrammingError was raised.",
        "Mail run good: queued again.",
    }


def test_a_consumers_own_reason_is_told(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = row(SyncRun, job_id="mine")
    monkeypatch.setattr(SyncRun, "redo", lambda self: Enqueued(self, False, "closed on <Sundays>"))
    assert redo(admin_client, run) == ["Sync run mine: not queued: closed on <Sundays>."]


@pytest.mark.parametrize(
    "made_up",
    ["", "x", "lab.mailrun", "lab.mailrun:", "lab.mailrun:x", "lab.order:1", "auth.user:1",
     "lab.mailrun:" + "9" * 30, "lab.uuidrun:1", "lab.mailrun:6f9619ff8b86d011b42d00cf4fc964ff"],
)  # fmt: skip
def test_what_somebody_made_up_does_nothing(admin_client: Client, made_up: str) -> None:
    assert redo(admin_client, made_up) == [
        "Nothing was done: no run that is still there was selected."
    ]


def test_one_comes_back_to_the_list_as_it_was(admin_client: Client) -> None:
    run = row(MailRun)
    query = "?state=failed&module=lab.mailrun&next=https://evil.example"
    answer = admin_client.post(f"{REDO}{query}", {"run": value(run)})
    assert answer.headers["Location"] == f"{LIST}?state=failed&module=lab.mailrun"


# Filters and pages


def test_the_list_can_be_narrowed_to_a_state_and_a_module(admin_client: Client) -> None:
    row(MailRun, job_id="failed-mail")
    row(SyncRun, job_id="failed-sync")
    row(SyncRun, "running", job_id="running-sync")
    both = admin_client.get(LIST).content.decode()
    assert "failed-mail" in both
    assert "failed-sync" in both
    assert "running-sync" not in both
    narrow = admin_client.get(LIST, {"module": "lab.syncrun"}).content.decode()
    assert "failed-mail" not in narrow
    assert "running (1)" in narrow
    running = admin_client.get(LIST, {"state": "running", "module": "lab.syncrun"})
    html = running.content.decode()
    assert "running-sync" in html
    assert 'name="run"' not in html


def test_a_waiting_run_says_when_it_is_due(admin_client: Client) -> None:
    row(MailRun, "queued", next_retry_at=NOON.replace(year=2999), attempts=2)
    html = admin_client.get(LIST, {"state": "waiting"}).content.decode()
    assert re.search(r'due in <time datetime="2999-[^"]+" title="2999-01-01 12:00:00 UTC">', html)


@pytest.mark.parametrize("query", [{"state": "x"}, {"module": "x"}, {"after": "x"}, {"x": "y"}])
def test_what_makes_no_sense_in_a_query_is_left_out(admin_client: Client, query: Any) -> None:
    row(MailRun, job_id="there")
    answer = admin_client.get(LIST, query)
    assert "there" in answer.content.decode()


def test_pages_follow_one_another(admin_client: Client) -> None:
    for n in range(ROWS + 2):
        row(MailRun, minute=n, job_id=f"run-{n:03}")
    first = admin_client.get(LIST).content.decode()
    assert f"run-{ROWS + 1:03}" in first
    assert "run-001" not in first
    assert "Back to the top" not in first
    link = re.search(r'<a href="([^"]+)" rel="next">', first)
    assert link
    second = admin_client.get(LIST + unescape(link[1])).content.decode()
    assert "run-001" in second
    assert "run-000" in second
    assert 'rel="next"' not in second
    assert "Back to the top" in second


def test_the_number_of_statements_does_not_grow_with_the_rows(admin_client: Client) -> None:
    def statements() -> tuple[int, int]:
        with (
            CaptureQueriesContext(connection) as here,
            CaptureQueriesContext(connections["jobs"]) as there,
        ):
            admin_client.get(LIST)
        return len(here), len(there)

    row(MailRun), row(OtherRun)
    few = statements()
    for n in range(20):
        row(MailRun, minute=n), row(SyncRun, minute=n), row(OtherRun, minute=n)
    assert statements() == few
    assert few[1] == 2


# Everything from a job is text


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_job_says_is_text_on_every_page(admin_client: Client, text: str) -> None:
    error = {"type": text[:100], "message": text, "traceback": f"Traceback:\n  {text}"}
    run = row(
        MailRun, job_id=text, lock_key=text, lane=text, last_error=error, note=text,
        stats={"progress": text},
    )  # fmt: skip
    own = reverse("admin:lab_mailrun_change", args=[run.pk])
    pages = [
        admin_client.get(LIST),
        admin_client.get(own),
        admin_client.get(reverse("admin:lab_mailrun_changelist"), {"q": text}),
        admin_client.get(reverse("admin:lab_mailrun_delete", args=[run.pk])),
        admin_client.post(REDO, {"run": value(run)}, follow=True),
        admin_client.post(REDO, {"run": value(run)}, follow=True),
        admin_client.get(reverse("admin:lab_mailrun_history", args=[run.pk])),
        admin_client.get(reverse("admin:index")),
    ]
    for page in pages:
        assert page.status_code == 200
        html = page.content.decode()
        assert "<script>alert" not in html
        assert "<img src=x" not in html
        assert '" onmouseover' not in html
        assert 'href="javascript:' not in html
        assert "only for tests" not in html
    assert said(pages[4])[0].endswith(": queued again.")


def test_no_markup_of_ours_needs_an_inline_style_or_script(admin_client: Client) -> None:
    row(MailRun)
    for address in (LIST, f"{LIST}?state=running"):
        html = admin_client.get(address).content.decode()
        assert not re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", html)


# RunContractAdmin


def test_contract_columns_are_shown_and_cannot_be_written(admin_client: Client) -> None:
    run = row(MailRun, job_id="mine")
    address = reverse("admin:lab_mailrun_change", args=[run.pk])
    html = admin_client.get(address).content.decode()
    for name in ("state", "lease", "job_id", "attempts", "heartbeat_at"):
        assert f'name="{name}"' not in html
        assert f"field-{name}" in html
    body = {"task": "succeed", "args": "[1]", "progress": 7, "note": "new", "state": "succeeded"}
    assert admin_client.post(address, body).status_code == 302
    run.refresh_from_db()
    assert (run.progress, run.note, run.state) == (7, "new", "failed")


def test_a_traceback_keeps_its_lines(admin_client: Client) -> None:
    lines = "Traceback (most recent call last):\n  File <x>\n    deep\nE: é"
    run = row(MailRun, last_error={"type": "E", "message": "m" * 5000, "traceback": lines})
    html = admin_client.get(reverse("admin:lab_mailrun_change", args=[run.pk])).content.decode()
    shown = re.search(r'<pre class="run-traceback">(.*?)</pre>', html, re.DOTALL)
    assert shown
    assert unescape(shown[1]) == lines
    assert "m" * 5000 in html


def test_a_run_without_an_error_has_no_place_for_one(admin_client: Client) -> None:
    run = row(OtherRun, "queued")
    html = admin_client.get(reverse("admin:lab_otherrun_change", args=[run.pk])).content.decode()
    assert "Last error" not in html


def test_the_list_says_state_attempts_age_and_error(admin_client: Client) -> None:
    row(MailRun, attempts=3)
    row(MailRun, "queued", next_retry_at=NOON.replace(year=2999))
    row(MailRun, "running")
    row(PassRun)
    html = admin_client.get(reverse("admin:lab_mailrun_changelist")).content.decode()
    for word in ("failed", "waiting", "running"):
        assert f'<span class="run-state run-{word}">{word}</span>' in html
    assert '<span class="run-why">permanent</span>' in html
    assert '<td class="field-attempts_word">3</td>' in html
    assert re.search(r'<time class="run-age" datetime="[^"]+" title="[^"]+">\d+ days</time>', html)
    assert "<b>ValueError</b> no" in html
    plain = admin_client.get(reverse("admin:lab_passrun_changelist")).content.decode()
    assert '<td class="field-attempts_word">\N{EN DASH}</td>' in plain


def test_the_list_loads_no_big_column(admin_client: Client) -> None:
    row(MailRun)
    with CaptureQueriesContext(connection) as statements:
        admin_client.get(reverse("admin:lab_mailrun_changelist"))
    listing = [each["sql"] for each in statements if '"lab_mailrun"."lane"' in each["sql"]]
    assert listing
    for sql in listing:
        assert not re.search(r'"last_error",|"stats",', sql)


def test_the_list_counts_no_further_than_it_must(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runcontract.admin.runs.ROWS", 3)
    for n in range(5):
        row(MailRun, job_id=f"run-{n}")
    html = admin_client.get(reverse("admin:lab_mailrun_changelist")).content.decode()
    assert "3 mail runs" in html


def test_nothing_can_be_added_by_hand(admin_client: Client) -> None:
    assert admin_client.get(reverse("admin:lab_mailrun_add")).status_code == 403


def act(client: Client, action: str, *runs: Any) -> list[str]:
    address = reverse(f"admin:lab_{runs[0]._meta.model_name}_changelist")
    body = {"action": action, "_selected_action": [run.pk for run in runs]}
    return said(client.post(address, body, follow=True))


def test_redo_and_cancel_report_row_by_row(admin_client: Client) -> None:
    failed = row(OtherRun, job_id="failed")
    queued = row(OtherRun, "queued", job_id="queued")
    running = row(OtherRun, "running", job_id="running")
    assert set(act(admin_client, "redo", failed, queued)) == {
        "Other run failed: queued again.",
        "Other run queued: it is already queued; nothing was done.",
    }
    done = row(OtherRun, "succeeded", job_id="done")
    assert set(act(admin_client, "cancel", queued, running, done)) == {
        "Other run queued: cancelled.",
        "Other run running: asked to stop; its worker will cancel it.",
        "Other run done: it has ended; nothing was done.",
    }
    assert states(queued, running, done) == ["failed", "running", "succeeded"]
    assert running.cancel_requested
    assert LogEntry.objects.filter(change_message__startswith="Cancel: ").count() == 3


def test_actions_need_the_permission_to_change(staff: Any) -> None:
    run = row(MailRun)
    client = staff("view_mailrun")
    html = client.get(reverse("admin:lab_mailrun_changelist")).content.decode()
    assert "Redo the selected" not in html
    act(client, "redo", run)
    assert states(run) == ["failed"]


def test_a_consumers_own_fieldsets_are_taken_as_they_are(rf: Any, admin_user: User) -> None:
    class Own(RunContractAdmin):
        fieldsets = [(None, {"fields": ["note", "state"]})]

    request = rf.get("/")
    request.user = admin_user
    own: ModelAdmin[Any] = Own(MailRun, site)
    assert own.get_fieldsets(request) == Own.fieldsets
    assert own.get_form(request).base_fields.keys() == {"note"}
