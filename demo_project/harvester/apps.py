"""The app."""

from django.apps import AppConfig


class HarvesterConfig(AppConfig):
    """One consumer of runcontract."""

    name = "demo_project.harvester"
    label = "harvester"
    default_auto_field = "django.db.models.BigAutoField"
