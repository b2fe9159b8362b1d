"""What this app tells others."""

from django.dispatch import Signal

catalogue_changed = Signal()
"""`harvested()` has another answer. Sent last in the transaction that changes it."""
