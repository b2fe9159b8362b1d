"""The graph. Only a whole pass ever replaces it."""

from __future__ import annotations

from django.db import models


class Entity(models.Model):
    """A distribution, harvested or only required."""

    name = models.TextField(primary_key=True)  # normalised (PEP 503)
    version = models.TextField(blank=True, help_text="Empty: required, but not harvested.")
    licence = models.TextField(blank=True)
    unreadable = models.JSONField(default=list, help_text="Requirements that nobody can read.")
    orphan = models.BooleanField(default=False, help_text="Nothing requires it.")
    dependents = models.PositiveIntegerField(default=0, help_text="Directly or not.")
    pulls_in = models.PositiveIntegerField(default=0, help_text="Directly or not.")

    class Meta:
        verbose_name_plural = "entities"

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


class Edge(models.Model):
    """What the source requires of the target in this environment, all its lines together."""

    source = models.ForeignKey(Entity, on_delete=models.CASCADE, related_name="requires")
    target = models.ForeignKey(Entity, on_delete=models.CASCADE, related_name="required_by")
    specifier = models.TextField(blank=True)
    extra = models.TextField(blank=True, help_text="What brings it in; empty: required anyway.")
    conflict = models.BooleanField(default=False, help_text="The version satisfies it not.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["source", "target"], name="knowledge_one_edge")
        ]

    def __str__(self) -> str:
        return f"{self.source_id} → {self.target_id} {self.specifier}".strip()
