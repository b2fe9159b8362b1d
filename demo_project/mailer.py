"""Django's SMTP backend, in the settings that this version of Django takes without a warning."""

from __future__ import annotations

from typing import Any

import django

BACKEND = "django.core.mail.backends.smtp.EmailBackend"


def smtp(host: str, port: int, timeout: float) -> dict[str, Any]:
    """The settings by which mail goes to this server; `timeout` is seconds for each answer."""
    if django.VERSION >= (6, 1):
        options = {"host": host, "port": port, "timeout": timeout}
        return {"MAILERS": {"default": {"BACKEND": BACKEND, "OPTIONS": options}}}
    return {
        "EMAIL_BACKEND": BACKEND,
        "EMAIL_HOST": host,
        "EMAIL_PORT": port,
        "EMAIL_TIMEOUT": timeout,
    }
