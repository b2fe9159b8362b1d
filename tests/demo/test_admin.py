"""The harvester's ordinary admin pages, and the demo's front door."""

import pytest
import redis
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from demo_project.harvester.models import DeadLetter, Harvest, HarvestRun, ReconcileRun, Source

pytestmark = pytest.mark.django_db


@pytest.fixture
def letter(redis_server: redis.Redis) -> DeadLetter:
    source = Source.objects.create(name="<b>a</b>", version="1.0")
    Harvest.objects.create(source=source, generation=1, version="0.9", harvested_at=Now())
    HarvestRun.objects.enqueue(job_id="h", source=source, generation=1)
    ReconcileRun.objects.enqueue(job_id="r")
    return DeadLetter.objects.create(
        source=source, job_id="h", failure="permanent", cause="<i>404</i>", at=Now()
    )


@pytest.mark.parametrize("model", ["source", "harvest", "deadletter", "harvestrun", "reconcilerun"])
def test_lists_and_pages_open(admin_client: Client, letter: DeadLetter, model: str) -> None:
    listing = admin_client.get(reverse(f"admin:harvester_{model}_changelist"), {"q": "a"})
    assert listing.status_code == 200
    assert b"<b>a</b>" not in listing.content
    assert b"<i>404" not in listing.content
    one = apps.get_model("harvester", model)._default_manager.get()
    page = admin_client.get(reverse(f"admin:harvester_{model}_change", args=[one.pk]))
    assert page.status_code == 200


def pick_up(client: Client, letter: DeadLetter) -> str:
    return client.post(
        reverse("admin:harvester_deadletter_changelist"),
        {"action": "pick_up", "_selected_action": [letter.pk]},
        follow=True,
    ).content.decode()


def test_dead_letter_is_picked_up_from_its_list(admin_client: Client, letter: DeadLetter) -> None:
    HarvestRun.objects.update(
        state="failed", failure="permanent", finished_at=Now(), held_until=Now()
    )
    assert "1 picked up, 1 enqueued" in pick_up(admin_client, letter)
    letter.refresh_from_db()
    assert letter.picked_at


def test_picking_up_needs_the_permission_to_change(client: Client, letter: DeadLetter) -> None:
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_deadletter"))
    client.force_login(user)
    pick_up(client, letter)
    letter.refresh_from_db()
    assert letter.picked_at is None


@pytest.mark.django_db(databases=["default", "jobs"])
def test_the_demos_addresses_all_open(admin_client: Client, settings: Settings) -> None:
    settings.ROOT_URLCONF = "demo_project.urls"
    for address in ("/", "/graph.json", "/admin/runcontract/failure/"):
        assert admin_client.get(address).status_code == 200
    assert admin_client.get("/django-rq/").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_django_rq_pages_take_nothing_out_of_a_backlog(
    admin_client: Client, settings: Settings, redis_server: redis.Redis
) -> None:
    settings.ROOT_URLCONF = "demo_project.urls"
    source = Source.objects.create(name="a", version="1.0")
    HarvestRun.objects.bulk_enqueue([{"source": source, "generation": 1}] * 20)
    backlog = redis_server.lrange("rq:queue:bulk", 0, -1)
    assert len(backlog) == 20
    lanes = range(len(settings.RQ_QUEUES))
    pages = ["", "stats.json", *(f"queues/{lane}/" for lane in lanes), "workers/0/"]
    for page in pages:
        assert admin_client.get(f"/django-rq/{page}").status_code == 200, page
    assert redis_server.lrange("rq:queue:bulk", 0, -1) == backlog
