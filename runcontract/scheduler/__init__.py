"""`runscheduler`: the singleton that ticks cron, sweeps, reaps, releases and prunes."""

from .schedules import schedule

__all__ = ["schedule"]
