"""A project with one run model that does nothing; the servers are the ones that drain.py starts."""

import os

import environ

DATABASES = {"default": dict(environ.Env.db_url_config(os.environ["DATABASE_URL"]))}
if host := DATABASES["default"].get("OPTIONS", {}).pop("host", None):
    DATABASES["default"]["HOST"] = host
RQ_QUEUES = {"default": {"URL": os.environ["REDIS_URL"]}}
RQ = {"QUEUE_CLASS": "runcontract.transport.RunQueue"}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_rq",
    "runcontract",
    "benchmarks.noop",
]
SECRET_KEY = "only for benchmarks"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
