"""What runs by the clock."""

from runcontract.scheduler import schedule

from .models import LOCK, CurationRun

schedule("nightly-curation", CurationRun, "30 3 * * *", catch_up="once", lock_key=LOCK)
