"""What is to be harvested, what was, and what could not be."""

from __future__ import annotations

from typing import Self

from django.db import models

from ..client import Metadata


class Source(models.Model):
    """A distribution that the origin lists or listed once."""

    name = models.CharField(max_length=200, unique=True)
    version = models.CharField(max_length=200)
    listed = models.BooleanField(default=True)
    generation = models.PositiveIntegerField(
        default=1, help_text="Grows each time that its harvest is asked for anew."
    )

    def __str__(self) -> str:
        return self.name


class Harvest(models.Model):
    """What was harvested last from a source."""

    source = models.OneToOneField(Source, on_delete=models.CASCADE)
    generation = models.PositiveIntegerField()
    version = models.TextField()
    summary = models.TextField(blank=True)
    license = models.TextField(blank=True)
    requires_python = models.TextField(blank=True)
    requires_dist = models.JSONField(default=list)
    harvested_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.source} {self.version}"


class DeadLetters(models.QuerySet["DeadLetter"]):
    """Dead letters, many at a time."""

    def open(self) -> Self:
        """Those that wait for somebody; what the origin lists no more is waited for by nobody."""
        return self.filter(picked_at=None, source__listed=True)


class DeadLetter(models.Model):
    """A harvest that failed for good, until somebody picks it up again."""

    source = models.ForeignKey(Source, on_delete=models.CASCADE, related_name="dead_letters")
    job_id = models.CharField(max_length=255)
    failure = models.CharField(max_length=20)
    cause = models.TextField()
    at = models.DateTimeField()
    picked_at = models.DateTimeField(
        null=True, blank=True, help_text="When the source was taken up again; empty while open."
    )

    objects = DeadLetters.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["source"],
                condition=models.Q(picked_at=None),
                name="harvester_one_open_dead_letter",
            )
        ]

    def __str__(self) -> str:
        return f"{self.source}: {self.cause}"


def harvested() -> list[Metadata]:
    """What is known of each listed distribution, by name; read in one statement."""
    columns = [name.replace("name", "source__name") for name in Metadata.__dataclass_fields__]
    rows = Harvest.objects.filter(source__listed=True).order_by("source__name")
    return [Metadata(*row) for row in rows.values_list(*columns)]
