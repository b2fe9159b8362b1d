"""Every model of the lab in the admin."""

from django.apps import apps
from django.contrib import admin

from runcontract.admin import RunContractAdmin
from runcontract.registry import is_run_model

for model in apps.get_app_config("lab").get_models():
    admin.site.register(model, RunContractAdmin if is_run_model(model) else None)
