"""The story: what the demo has asked for, step by step, so that the next demo goes on with it."""

from __future__ import annotations

from django.db import models


class Story(models.Model):
    """One telling, from the first harvest to the last mail."""

    began = models.DateTimeField()
    seed = models.IntegerField()
    asked = models.JSONField(default=list, help_text="The keys of the runs that were asked first.")
    told = models.JSONField(default=dict, help_text="What came of each step that was taken.")

    class Meta:
        verbose_name_plural = "stories"

    def __str__(self) -> str:
        return f"story {self.pk}"
