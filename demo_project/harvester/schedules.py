"""What runs by the clock."""

from runcontract.scheduler import schedule

from .models import ReconcileRun

schedule("nightly-reconcile", ReconcileRun, "0 3 * * *", catch_up="once", lock_key="reconcile")
