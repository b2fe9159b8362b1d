"""The tables, and what can be done with them as a whole."""

from .catalogue import DeadLetter, Harvest, Source
from .harvest import HarvestRun
from .reconcile import ReconcileRun, ask_again, reconcile, retry_dead_letters

__all__ = [
    "DeadLetter",
    "Harvest",
    "HarvestRun",
    "ReconcileRun",
    "Source",
    "ask_again",
    "reconcile",
    "retry_dead_letters",
]
