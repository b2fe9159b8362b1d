"""The failure page as a person meets it: light, dark, wide, narrow, by keyboard, without script."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.lab.models import MailRun, OtherRun, PassRun, SyncRun
from tests.support.rows import NOON, row

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "jobs"])

PAGE = reverse("admin:runcontract_failure_changelist")
ATTACK = "<script>alert(1)</script> <img src=x onerror=alert(1)> {{ settings.SECRET_KEY }} %s {0}"


def error(kind: str, message: str) -> dict[str, Any]:
    lines = [f"  File 'harvest.py', line {n}, in fetch_{n}" for n in range(12)]
    traceback = "\n".join(["Traceback (most recent call last):", *lines, f"{kind}: {message}"])
    return {"type": kind, "message": message, "traceback": traceback}


@pytest.fixture
def runs() -> dict[str, Any]:
    """A day's failures, with the worst that a job can say."""
    minutes = (timezone.now() - NOON).total_seconds() / 60
    timeout = error("httpx.ReadTimeout", "timed out after 30 s while reading https://origin/a")
    rtl = error("ValueError", "\u202e" + "desrever " * 12 + "\u200f" * 40)
    long = error("lab.errors.Refused", "no " * 300)
    return {
        "ordinary": row(
            MailRun, minute=minutes - 3, job_id="mail:42", failure="exhausted", attempts=5,
            last_error=timeout,
        ),
        "locked": row(SyncRun, minute=minutes - 90, job_id="sync:7", lock_key="source:7"),
        "holder": row(SyncRun, "queued", minutes, job_id="sync:8", lock_key="source:7"),
        "plain": row(PassRun, minute=minutes - 400, job_id="pass:2026-07-01"),
        "other": row(
            OtherRun, minute=minutes - 4000, job_id="o" * 255, failure="stale",
            last_error=error("WorkerLost", "The worker host-1.231.a9 was lost."),
        ),
        "attack": row(MailRun, minute=minutes - 5, job_id=ATTACK, last_error=error("E", ATTACK)),
        "rtl": row(MailRun, minute=minutes - 6, job_id="\u202e/1/txt", last_error=rtl),
        "long": row(MailRun, minute=minutes - 7, job_id="long", attempts=12345, last_error=long),
        "waiting": row(
            MailRun, "queued", minutes - 1, job_id="later", last_error=timeout,
            next_retry_at=timezone.now() + timedelta(minutes=4.5), attempts=2,
        ),
        "running": row(MailRun, "running", minutes - 2, job_id="now"),
        "succeeded": row(MailRun, "succeeded", minutes - 20, job_id="well"),
    }  # fmt: skip


@pytest.fixture
def sign_in(live_server: Any) -> Callable[[Any], None]:
    """Give a browser context the session of a superuser."""
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    session = {"name": "sessionid", "value": client.cookies["sessionid"].value}
    return lambda context: context.add_cookies([{**session, "url": live_server.url}])


@pytest.fixture
def opened(page: Any, sign_in: Callable[[Any], None], runs: dict[str, Any]) -> Iterator[Any]:
    """The page, open; any word in the console and any dialog fails the test."""
    sign_in(page.context)
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
    page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
    page.goto(PAGE)
    yield page
    assert not said


def checkbox(run: Any) -> str:
    return f'input[value="{run._meta.label_lower}:{run.pk}"]'


def messages(page: Any) -> list[str]:
    return [text.strip() for text in page.locator(".messagelist li").all_inner_texts()]


def test_selected_runs_are_redone_and_each_says_what_it_met(
    opened: Any, runs: dict[str, Any], tmp_path: Path
) -> None:
    for name in ("ordinary", "locked", "attack"):
        opened.check(checkbox(runs[name]))
    opened.screenshot(path=tmp_path / "selected.png", full_page=True)
    opened.click("text=Redo the selected runs")
    opened.screenshot(path=tmp_path / "redone.png", full_page=True)
    assert set(messages(opened)) == {
        "Mail run mail:42: queued again.",
        f"Mail run {ATTACK}: queued again.",
        "Sync run sync:7: not queued, for its lock is held by sync:8, which is queued.",
    }
    runs["ordinary"].refresh_from_db()
    assert (runs["ordinary"].state, runs["ordinary"].attempts) == ("queued", 0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_fits_its_window(opened: Any, tmp_path: Path, scheme: str, width: int) -> None:
    opened.emulate_media(color_scheme=scheme)
    opened.set_viewport_size({"width": width, "height": 900})
    for state in ("failed", "waiting"):
        opened.goto(f"{PAGE}?state={state}")
        assert opened.locator("table.runs tbody tr").count()
        opened.screenshot(path=tmp_path / f"{state}-{scheme}-{width}.png", full_page=True)
        wide = opened.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{state} is {wide} px wide"


def test_it_works_by_keyboard_alone(opened: Any, runs: dict[str, Any]) -> None:
    opened.focus(checkbox(runs["plain"]))
    opened.keyboard.press("Space")
    opened.focus("text=Redo the selected runs")
    opened.keyboard.press("Enter")
    opened.wait_for_selector(".messagelist")
    assert messages(opened) == ["Pass run pass:2026-07-01: queued again."]


def test_the_box_on_top_selects_every_run_of_the_page(opened: Any, runs: dict[str, Any]) -> None:
    opened.check("#action-toggle")
    assert opened.locator("input[name=run]:checked").count() == 7
    assert "7 of 7 selected" in opened.inner_text(".action-counter")


def test_it_works_without_script(
    chromium: Any, live_server: Any, sign_in: Callable[[Any], None], runs: dict[str, Any]
) -> None:
    context = chromium.new_context(base_url=live_server.url, java_script_enabled=False)
    sign_in(context)
    page = context.new_page()
    page.goto(PAGE)
    page.check(checkbox(runs["other"]))
    page.click("text=Redo the selected runs")
    assert messages(page) == [f"Other run {'o' * 255}: queued again."]
    context.close()


def test_a_runs_own_page_shows_its_traceback_line_by_line(opened: Any, tmp_path: Path) -> None:
    opened.click("text=mail:42")
    lines = opened.inner_text(".run-traceback").splitlines()
    assert len(lines) == 14
    assert lines[1].startswith("  File")
    opened.screenshot(path=tmp_path / "run.png", full_page=True)
    opened.goto(reverse("admin:lab_mailrun_changelist"))
    opened.screenshot(path=tmp_path / "runs.png", full_page=True)


def test_a_strict_content_security_policy_has_nothing_to_refuse(opened: Any) -> None:
    def strict(route: Any) -> None:
        response = route.fetch()
        policy = {"content-security-policy": "default-src 'self'"}
        route.fulfill(response=response, headers={**response.headers, **policy})

    opened.route("**/admin/**", strict)
    for address in (PAGE, reverse("admin:lab_mailrun_changelist")):
        opened.goto(address)
        assert opened.locator("input.action-select").count()
