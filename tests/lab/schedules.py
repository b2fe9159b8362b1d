"""Schedules only where a test's own process is told to have some.

RUNCONTRACT_TEST_SCHEDULES is a JSON list of {"name", "model", "cron", …} objects.
"""

import json
import os

from django.apps import apps

from runcontract.scheduler import schedule

for entry in json.loads(os.environ.get("RUNCONTRACT_TEST_SCHEDULES", "[]")):
    model = apps.get_model("lab", entry.pop("model"))
    schedule(entry.pop("name"), model, entry.pop("cron"), **entry)
