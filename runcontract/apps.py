"""The app's configuration."""

from __future__ import annotations

from django.apps import AppConfig


class RunContractConfig(AppConfig):
    """Registers the system checks."""

    name = "runcontract"
    verbose_name = "Runs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401, PLC0415 - models can be imported only from here on
