"""The story's page as a person meets it: drawn, refreshed, light, dark, narrow, without script."""

from pathlib import Path
from typing import Any

import pytest
from django.db.models.functions import Now
from django.urls import reverse

from demo_project.agents.models import AgentRun, NewestAnswer, ask
from demo_project.demo.models import Story
from demo_project.demo.story import begin
from demo_project.harvester.models import DeadLetter, HarvestRun, Source
from demo_project.knowledge.models import CurationRun, Entity
from demo_project.notifications.announce import notify
from demo_project.notifications.models import Delivery
from demo_project.origin import installed
from tests.demo.graphs import curate, harvest

pytestmark = pytest.mark.django_db(transaction=True)

ATTACK = "<script>alert(1)</script> <img src=x onerror=alert(1)>"


def settle(run: Any, state: str, **values: Any) -> None:
    type(run).objects.filter(pk=run.pk).update(
        state=state, finished_at=Now(), held_until=Now(), **values
    )


def fail(run: Any, failure: str, message: str) -> None:
    settle(
        run, "failed", failure=failure, last_error={"type": "PermanentError", "message": message}
    )


@pytest.fixture
def told(redis_server: Any) -> Story:
    """A story in its middle: a real graph, answers, mails, and what failed."""
    now = begin(seed=1)
    for name, metadata in installed().items():
        requires = metadata["requires_dist"]
        harvest(name, *requires, version=metadata["version"], licence=metadata["license"])
    source = Source.objects.create(name="gone", version="1")
    runs = [
        HarvestRun.objects.enqueue(job_id=f"h:{number}", source=source, generation=number).run
        for number in range(5)
    ]
    fail(runs[0], "permanent", "/dist/gone: the origin answered 404 Not Found")
    DeadLetter.objects.create(source=source, job_id="h:0", failure="permanent", cause="?", at=Now())
    settle(runs[1], "succeeded")
    curate()
    settle(CurationRun.objects.enqueue(lock_key="graph").run, "succeeded")
    for question in ("what depends on packaging?", ATTACK):
        run = ask(question, asked_by="ada@example.org").run
        settle(run, "succeeded")
        text = f"12 depend on it. {question}"
        NewestAnswer.objects.create(
            question=question, text=text, facts={}, run=run, lease=1, at=Now()
        )
    fail(ask("who wrote it?").run, "permanent", f"The planner does not understand {ATTACK}")
    for number, state in enumerate(("queued", "succeeded", "failed")):
        mail = notify(f"e:{number}", f"reader-{number}@example.org", "The graph stands", "body").run
        if state != "queued":
            words = {"failure": "permanent", "not_delivered": "550 5.1.1 No such user"}
            settle(mail, state, **(words if state == "failed" else {}))
    Story.objects.update(told={"asked": "6 questions", "digest": "9 readers"})
    return now


@pytest.fixture
def opened(page: Any, told: Any) -> Any:
    """The page, drawn; any word in the console fails the test, a strict policy's included."""

    def strict(route: Any) -> None:
        response = route.fetch()
        policy = {"content-security-policy": "default-src 'self'"}
        route.fulfill(response=response, headers={**response.headers, **policy})

    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
    page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
    page.route("**/", strict)
    page.goto("/")
    page.wait_for_selector("#drawing[data-drawn]")
    yield page
    page.unroute_all(behavior="ignoreErrors")
    assert not said


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_fits_its_window(opened: Any, tmp_path: Path, scheme: str, width: int) -> None:
    opened.emulate_media(color_scheme=scheme)
    opened.set_viewport_size({"width": width, "height": 900})
    opened.wait_for_timeout(300)
    opened.screenshot(path=tmp_path / f"story-{scheme}-{width}.png", full_page=True)
    wide = opened.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"it is {wide} px wide"


def test_it_is_refreshed_in_place_and_a_new_pass_is_drawn(opened: Any, told: Any) -> None:
    opened.evaluate("window.stays = true")
    before = opened.get_attribute("#drawing", "data-drawn")
    Delivery.objects.filter(event="e:2").update(not_delivered="552 Mailbox full")
    newer = CurationRun.objects.enqueue(lock_key="graph").run
    settle(newer, "succeeded")
    opened.wait_for_selector("#deliveries >> text=552 Mailbox full")
    opened.wait_for_selector(f'#drawing[data-drawn="{newer.pk}"]')
    assert before != str(newer.pk)
    assert opened.evaluate("window.stays")


def test_without_script_the_tables_tell_it(chromium: Any, live_server: Any, told: Any) -> None:
    context = chromium.new_context(base_url=live_server.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    assert page.locator("#entities tbody tr").count() == 10
    assert page.is_hidden("#drawing")
    heaviest = Entity.objects.order_by("-dependents", "-pulls_in", "name")[0]
    assert heaviest.name in page.inner_text("#entities")
    assert "550 5.1.1 No such user" in page.inner_text("#deliveries")
    assert ATTACK in page.inner_text("#failures")
    context.close()


def test_each_part_leads_to_the_admin(opened: Any) -> None:
    links = opened.eval_on_selector_all("#content-main a", "all => all.map(one => one.pathname)")
    run = AgentRun.objects.get(state="failed")
    for view, keys in {
        "harvester_deadletter_changelist": [],
        "harvester_harvestrun_changelist": [],
        "notifications_delivery_change": [Delivery.objects.get(event="e:2").pk],
        "agents_agentrun_change": [run.pk],
        "runcontract_failure_changelist": [],
    }.items():
        assert reverse(f"admin:{view}", args=keys) in links
