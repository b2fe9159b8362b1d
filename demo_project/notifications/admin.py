"""The deliveries in the admin, and the one button for what was not delivered."""

from django.contrib import admin, messages
from django.contrib.admin import ModelAdmin as RunAdmin
from django.db.models import QuerySet
from django.http import HttpRequest

from .models import Delivery


@admin.register(Delivery)
class DeliveryAdmin(RunAdmin):  # type: ignore[type-arg]
    """Written by notify() only."""

    list_display = ["subject", "recipient", "kind", "state", "attempts", "delivered", "why_not"]
    list_filter = ["state", "kind", ("not_delivered", admin.EmptyFieldListFilter)]
    search_fields = ["job_id", "recipient", "subject", "not_delivered", "message_id"]
    actions = ["resend"]

    @admin.display(description="delivered", ordering="delivered_at", empty_value="–")
    def delivered(self, delivery: Delivery) -> object:
        """When, if it was."""
        return delivery.delivered_at

    @admin.display(description="not delivered", ordering="not_delivered")
    def why_not(self, delivery: Delivery) -> str:
        """The beginning of the server's words."""
        return delivery.not_delivered[:80]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """A delivery is announced, not typed in."""
        return False

    @admin.action(description="Resend what was not delivered", permissions=["change"])
    def resend(self, request: HttpRequest, deliveries: QuerySet[Delivery]) -> None:
        """Row by row; what cannot be sent again is told with its reason."""
        for delivery in deliveries:
            again = delivery.redo()
            if again:
                self.message_user(request, f"{delivery.job_id} is sent again", messages.SUCCESS)
            else:
                said = f"{delivery.job_id} is not sent again: {again.reason}"
                self.message_user(request, said, messages.WARNING)
