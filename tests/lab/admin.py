"""Every model of the lab in the admin."""

from django.apps import apps
from django.contrib import admin

for model in apps.get_app_config("lab").get_models():
    admin.site.register(model)
