"""The deliveries in the admin, and the one button for what was not delivered."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from runcontract.admin import RunContractAdmin

from .models import Delivery


@admin.register(Delivery)
class DeliveryAdmin(RunContractAdmin):
    """Announced by other apps. A wrong address may be put right before it is resent."""

    list_display = ["subject", "recipient", "kind", "state_word", "attempts_word", "age", "why_not"]
    list_filter = ["state", "kind", ("not_delivered", admin.EmptyFieldListFilter)]
    search_fields = ["job_id__exact", "recipient", "message_id__exact"]
    search_help_text = "A job_id, a Message-ID, or a part of an address."
    readonly_fields = ["event", "kind", "message_id", "delivered_at", "not_delivered"]

    @admin.display(description="not delivered", ordering="not_delivered")
    def why_not(self, delivery: Delivery) -> str:
        """The beginning of the server's words."""
        return delivery.not_delivered[:80]

    @admin.action(description="Resend what was not delivered", permissions=["change"])
    def redo(self, request: HttpRequest, runs: QuerySet[Delivery]) -> None:
        """Again in this app's meaning, row by row."""
        super().redo(request, runs)
