"""The deliveries in the admin: what was not delivered, and resend."""

import pytest
from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from demo_project.notifications.announce import notify
from demo_project.notifications.models import Delivery

pytestmark = pytest.mark.django_db

LIST = "admin:notifications_delivery_changelist"


@pytest.fixture
def delivery() -> Delivery:
    """Not delivered, in words that would like to act."""
    delivery: Delivery = notify("birth", "ada@exmaple.org", "<b>Now</b>", "It is born.").run
    Delivery.objects.update(
        state="failed",
        failure="permanent",
        finished_at=Now(),
        held_until=Now(),
        attempts=1,
        not_delivered="550 <i>nobody</i>",
    )
    return delivery


def resend(client: Client, delivery: Delivery) -> str:
    chosen = {"action": "redo", "_selected_action": [delivery.pk]}
    return client.post(reverse(LIST), chosen, follow=True).content.decode()


def test_list_and_page_show_the_servers_words_as_text(
    admin_client: Client, delivery: Delivery
) -> None:
    page = reverse("admin:notifications_delivery_change", args=[delivery.pk])
    for address in (reverse(LIST), page):
        content = admin_client.get(address, {"q": ""}).content.decode()
        assert "550 &lt;i&gt;nobody&lt;/i&gt;" in content
        assert "<b>Now" not in content
    assert delivery.message_id[1:-1] in admin_client.get(page).content.decode()
    assert admin_client.get(reverse("admin:notifications_delivery_add")).status_code == 403


def test_resend_queues_the_same_row_with_a_fresh_allowance(
    admin_client: Client, delivery: Delivery
) -> None:
    assert "Resend what was not delivered" in admin_client.get(reverse(LIST)).content.decode()
    assert "queued again" in resend(admin_client, delivery)
    again = Delivery.objects.get()
    assert (again.pk, again.state, again.attempts) == (delivery.pk, "queued", 0)
    assert (again.not_delivered, again.message_id) == ("", delivery.message_id)
    assert "it is already queued; nothing was done" in resend(admin_client, delivery)


def test_wrong_address_is_put_right_before_it_is_resent(
    admin_client: Client, delivery: Delivery
) -> None:
    page = reverse("admin:notifications_delivery_change", args=[delivery.pk])
    right = {"recipient": "ada@example.org", "subject": "Now", "body": "It is born."}
    assert admin_client.post(page, {**right, "state": "succeeded"}).status_code == 302
    resend(admin_client, delivery)
    again = Delivery.objects.get()
    assert (again.recipient, again.state) == ("ada@example.org", "queued")


def test_resend_needs_the_permission_to_change(client: Client, delivery: Delivery) -> None:
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_delivery"))
    client.force_login(user)
    resend(client, delivery)
    delivery.refresh_from_db()
    assert delivery.state == "failed"
