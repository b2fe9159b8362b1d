"""Settings of the demo: times so quick that every turn of a run's life can be watched.

From the environment: DATABASE_URL, REDIS_URL, SECRET_KEY, ORIGIN_URL, EMAIL_HOST, EMAIL_PORT,
DIGEST_READERS, STATE_DIR, DEMO_SECOND, DEBUG. Without the first two it is the servers that
`manage.py demo` starts in the state directory.
"""

from datetime import timedelta
from urllib.parse import quote

import environ

from demo_project import mailer, state

env = environ.Env()
SECOND = timedelta(seconds=env.float("DEMO_SECOND", default=1))  # a shorter one hurries all below
STATE_DIR = state.directory()
if (STATE_DIR / "demo.env").is_file():  # what a running demo tells the other terminals
    environ.Env.read_env(STATE_DIR / "demo.env")

BASE_DIR = state.CHECKOUT
DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="") or state.secret_key(STATE_DIR)
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "demo_project.urls"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "runcontract",
    "demo_project.demo",
    "demo_project.harvester",
    "demo_project.knowledge",
    "demo_project.agents",
    "demo_project.notifications",
    "django_rq",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
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
            ],
        },
    },
]

EMBEDDED_DATABASE_URL = f"postgres://postgres@/postgres?host={quote(str(STATE_DIR / 'pg'))}"
EMBEDDED_REDIS_URL = f"unix://{STATE_DIR / 'valkey' / 'sock'}?db=0"

DATABASES = {"default": env.db_url("DATABASE_URL", default=EMBEDDED_DATABASE_URL)}
if host := DATABASES["default"].get("OPTIONS", {}).pop("host", None):
    DATABASES["default"]["HOST"] = host  # a socket's directory; `dbshell` looks only there

LANES = ["interactive", "default", "bulk"]
RQ_QUEUES = {lane: {"URL": env.str("REDIS_URL", default=EMBEDDED_REDIS_URL)} for lane in LANES}
RQ = {"QUEUE_CLASS": "runcontract.transport.RunQueue"}

RUNCONTRACT = {
    "HEARTBEAT": 2 * SECOND,
    "STALE_AFTER": 8 * SECOND,
    "FENCE_MARGIN": 3 * SECOND,
    "TICK": 1 * SECOND,
    "SWEEP": 3 * SECOND,
    "SCHEDULER_LEASE": 5 * SECOND,
    "DRAIN_TIMEOUT": 5 * SECOND,
    "BACKOFF_BASE": 1 * SECOND,
    "BACKOFF_CAP": 8 * SECOND,
    "SHORT_PAUSE": 2 * SECOND,
    "HOLD_SUCCEEDED": timedelta(minutes=5),
    "HOLD_FAILED": 10 * SECOND,
}

AGENT_MODEL = env.str("AGENT_MODEL", default="demo_project.agents.planner.Planner")
ORIGIN_URL = env.str("ORIGIN_URL", default="http://127.0.0.1:8009")

MAIL_PATIENCE = 2.0  # seconds; out there RFC 5321 asks for minutes
globals().update(
    mailer.smtp(
        env.str("EMAIL_HOST", default="127.0.0.1"),
        env.int("EMAIL_PORT", default=8025),
        MAIL_PATIENCE,
    )
)
DEFAULT_FROM_EMAIL = "demo@notifications.example"
DIGEST_READERS = env.list("DIGEST_READERS", default=["reader@example.org"])

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {"runcontract": {"level": "INFO"}, "demo_project": {"level": "INFO"}},
}
