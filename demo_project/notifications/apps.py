"""The app."""

from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    """One consumer of runcontract."""

    name = "demo_project.notifications"
    label = "notifications"
    default_auto_field = "django.db.models.BigAutoField"
