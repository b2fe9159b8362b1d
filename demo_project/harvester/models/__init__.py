"""The tables, and what can be done with them as a whole."""

from .catalogue import DeadLetter, Harvest, Source, harvested
from .harvest import HarvestRun
from .reconcile import ReconcileRun, reconcile, retry_dead_letters

__all__ = [
    "DeadLetter",
    "Harvest",
    "HarvestRun",
    "ReconcileRun",
    "Source",
    "harvested",
    "reconcile",
    "retry_dead_letters",
]
