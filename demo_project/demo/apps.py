"""The app."""

from django.apps import AppConfig


class DemoConfig(AppConfig):
    """Brings `manage.py demo`, `manage.py demo_chaos` and the front page."""

    name = "demo_project.demo"
    label = "demo"
    default_auto_field = "django.db.models.BigAutoField"
