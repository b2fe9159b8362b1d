"""The app; it has no tables."""

from django.apps import AppConfig


class DemoConfig(AppConfig):
    """Brings `manage.py demo`."""

    name = "demo_project.demo"
    label = "demo"
