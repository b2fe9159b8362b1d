"""Signals, sent robustly and only after the fact is committed. `sender` is the run model.

A receiver is told, not asked: what it raises is logged by Django and changes nothing.
"""

from __future__ import annotations

from django.dispatch import Signal

run_enqueued = Signal()
"""run: it stands in the journal."""
run_started = Signal()
"""run: a worker claimed it."""
run_succeeded = Signal()
"""run"""
run_failed = Signal()
"""run, error: whatever the failure, a lost worker and a cancel included."""
run_deferred = Signal()
"""run, error: it waits for its next attempt."""
