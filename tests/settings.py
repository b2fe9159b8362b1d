"""A small project for the tests, on real servers and with quick settings.

The servers come from pip (see conftest.py) unless DATABASE_URL and REDIS_URL name others. Processes
that a test starts use these settings too; the environment tells them where the servers are.
"""

import json
import os
import tempfile
import zlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import environ

from demo_project import mailer

ROOT = Path(__file__).resolve().parent.parent

# Short, for unix sockets are in it; one for each pytest, and the same for the processes it starts.
SERVERS_PREFIX = f"rct-{os.geteuid()}-{zlib.crc32(os.fsencode(ROOT)):08x}-"
SERVERS = Path(
    os.environ.setdefault(
        "RUNCONTRACT_TEST_SERVERS",
        str(Path(tempfile.gettempdir(), f"{SERVERS_PREFIX}{os.getpid()}")),
    )
)
OWN_DATABASE = "DATABASE_URL" not in os.environ
OWN_REDIS = "REDIS_URL" not in os.environ
DATABASE_URL = os.environ.get(
    "DATABASE_URL", f"postgres://postgres@/runcontract?host={SERVERS / 'pg'}"
)
REDIS_URL = os.environ.get("REDIS_URL", f"unix://{SERVERS / 'valkey' / 'sock'}?db=0")


def database(url: str, name: str = "{}") -> dict[str, Any]:
    """The database of a URL, its name put into `name`."""
    config: dict[str, Any] = dict(environ.Env.db_url_config(url))
    config["NAME"] = name.format(config["NAME"])
    if host := config.get("OPTIONS", {}).pop("host", None):
        config["HOST"] = host  # django-environ leaves a socket's directory among the options
    return config


DATABASES = {"default": database(DATABASE_URL), "jobs": database(DATABASE_URL, "{}_jobs")}
for alias, name in json.loads(os.environ.get("RUNCONTRACT_TEST_DATABASES", "{}")).items():
    DATABASES[alias]["NAME"] = name  # a process of a test, on the test's own databases
if "RUNCONTRACT_TEST_JOBS_HOST" in os.environ:  # where a process of a test finds no server
    DATABASES["jobs"] |= {"HOST": os.environ["RUNCONTRACT_TEST_JOBS_HOST"], "PORT": "1"}
    if age := os.environ.get("RUNCONTRACT_TEST_CONN_MAX_AGE"):
        DATABASES[alias]["CONN_MAX_AGE"] = json.loads(age)
DATABASE_ROUTERS = ["tests.lab.router.LabRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANES = ["default", "bulk", "interactive"]
RQ_QUEUES = {lane: {"URL": REDIS_URL} for lane in LANES}
RQ = {"QUEUE_CLASS": "runcontract.transport.RunQueue"}

QUICK: dict[str, Any] = {
    "HEARTBEAT": 0.5,
    "STALE_AFTER": 2.5,
    "FENCE_MARGIN": 0.8,
    "TICK": 0.2,
    "SWEEP": 1,
    "SCHEDULER_LEASE": 2,
    "DRAIN_TIMEOUT": 3,
    "BACKOFF_BASE": 0.2,
    "BACKOFF_FLOOR": 0.05,
    "BACKOFF_CAP": 2,
    "SHORT_PAUSE": 0.3,
}
NOT_DURATIONS = {"FAST_PATH", "LANE", "MAX_ATTEMPTS", "MAX_LOST", "ON_LOST", "REDACT"}


def run_settings(values: dict[str, Any]) -> dict[str, Any]:
    """RUNCONTRACT from plain values; a number is a duration in seconds where one is meant."""
    return {
        key: value if key in NOT_DURATIONS or value is None else timedelta(seconds=value)
        for key, value in values.items()
    }


# A test's own process may be given others: a JSON object, durations in seconds.
RUNCONTRACT = run_settings(QUICK | json.loads(os.environ.get("RUNCONTRACT_TEST_SETTINGS", "{}")))

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_rq",
    "runcontract",
    "tests.lab",
    "demo_project.demo",
    "demo_project.harvester",
    "demo_project.knowledge",
    "demo_project.agents",
    "demo_project.notifications",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
ORIGIN_URL = "http://127.0.0.1:9"  # nobody is there: a test that harvests starts its own
AGENT_MODEL = os.environ.get("AGENT_MODEL", "demo_project.agents.planner.Planner")
MAIL_PORT = int(os.environ.get("RUNCONTRACT_TEST_MAIL_PORT", "9"))  # likewise
MAIL_PATIENCE = float(os.environ.get("RUNCONTRACT_TEST_MAIL_PATIENCE", "1"))
globals().update(mailer.smtp("127.0.0.1", MAIL_PORT, MAIL_PATIENCE))
DIGEST_READERS = ["one@example.org", "two@example.org"]
SECRET_KEY = "only for tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
ALLOWED_HOSTS = ["*"]
USE_TZ = os.environ.get("RUNCONTRACT_TEST_USE_TZ", "1") == "1"
TIME_ZONE = os.environ.get("RUNCONTRACT_TEST_TIME_ZONE", "UTC")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {"format": "%(asctime)s %(process)d %(levelname)s %(name)s %(message)s"}
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {"runcontract": {"handlers": ["stderr"], "level": "INFO"}},
}
