"""Which errors are worth another attempt. Decided on classes, never on texts."""

from __future__ import annotations

import asyncio
import smtplib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError

from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db.utils import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)

from ..exceptions import PermanentError, RunTimedOut, TransientError


@dataclass(frozen=True)
class Verdict:
    """`transient`: run again. `retry_after`: what the other side asked for, as it said it."""

    transient: bool
    retry_after: Any = None


TRANSIENT_STATUS = frozenset({408, 425, 429})
"""HTTP answers below 500 that ask to come again."""

TRANSIENT: tuple[type[BaseException], ...] = (
    RunTimedOut,
    TimeoutError,
    ConnectionError,
    asyncio.TimeoutError,
    smtplib.SMTPServerDisconnected,
    OperationalError,
    InterfaceError,
    InternalError,
    ImportError,  # a rolling deploy: another worker may know the code already
    MemoryError,
)
PERMANENT: tuple[type[BaseException], ...] = (
    ValidationError,
    ObjectDoesNotExist,
    IntegrityError,
    DataError,
    ProgrammingError,
    NotSupportedError,
    DatabaseError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,  # KeyError, IndexError
    NameError,
    NotImplementedError,
    RecursionError,
    SyntaxError,
    TypeError,
    UnicodeError,
)
"""Mistakes in code or data. ValueError is not among them: too many libraries raise it for a broken
answer of the other side. A subclass of a permanent one is permanent unless TRANSIENT names it."""

TRANSIENT_NAMES = frozenset(
    {
        "redis.exceptions.ConnectionError",
        "redis.exceptions.TimeoutError",
        "redis.exceptions.BusyLoadingError",
        "redis.exceptions.ReadOnlyError",
        "redis.exceptions.RedisError",
        "requests.exceptions.ConnectionError",
        "requests.exceptions.Timeout",
        "requests.exceptions.ChunkedEncodingError",
        "httpx.TransportError",
        "psycopg.OperationalError",
        "psycopg.InterfaceError",
        "urllib3.exceptions.HTTPError",
    }
)
PERMANENT_NAMES = frozenset(
    {
        "requests.exceptions.InvalidURL",
        "requests.exceptions.MissingSchema",
        "httpx.UnsupportedProtocol",
        "httpx.InvalidURL",
        "psycopg.DataError",
        "psycopg.IntegrityError",
        "psycopg.ProgrammingError",
    }
)
"""Classes of libraries that need not be installed, by module and name. The first in the order of
inheritance decides."""

Classify = Callable[[BaseException], Verdict | None]


def classify(exc: BaseException, own: Classify | None = None) -> Verdict:
    """Whether an attempt that ended with this is worth another.

    The consumer's words count first (TransientError, PermanentError, then the policy's
    `classify`), then what the other side answered, then the tables. What nobody knows is
    transient, up to the cap; so are SystemExit and the other BaseExceptions that a job lets out:
    they end the attempt, never the worker. A group is transient if all its members are.
    """
    if isinstance(exc, TransientError):
        return Verdict(True, exc.retry_after)
    if isinstance(exc, PermanentError):
        return Verdict(False)
    told = _asked(exc, own)
    if told is not None:
        return told
    if isinstance(exc, BaseExceptionGroup):
        return Verdict(all(classify(member, own).transient for member in exc.exceptions[:1000]))
    return _answered(exc) or _tabled(exc)


def _asked(exc: BaseException, own: Classify | None) -> Verdict | None:
    """The consumer's own table; one that raises has not answered."""
    if own is None:
        return None
    try:
        told = own(exc)
    except Exception:  # noqa: BLE001 - the consumer's code
        return None
    return told if isinstance(told, Verdict) else None


def _answered(exc: BaseException) -> Verdict | None:
    """What an HTTP or SMTP server said."""
    if isinstance(exc, HTTPError):
        return _http(exc.code, exc.headers)
    if any(name.startswith(("requests.", "httpx.")) for name in _names(exc)):
        response = getattr(exc, "_response", None) or getattr(exc, "response", None)
        return _http(getattr(response, "status_code", None), getattr(response, "headers", None))
    if isinstance(exc, smtplib.SMTPResponseException):
        return Verdict(not 500 <= exc.smtp_code < 600)
    if isinstance(exc, smtplib.SMTPRecipientsRefused):
        return Verdict(any(_smtp_code(answer) < 500 for answer in exc.recipients.values()))
    return None


def _smtp_code(answer: Any) -> int:
    return int(answer[0]) if isinstance(answer, tuple) and answer else 500


def _http(status: Any, headers: Any) -> Verdict | None:
    if not isinstance(status, int):
        return None
    transient = status in TRANSIENT_STATUS or status >= 500
    try:
        asked = headers.get("Retry-After") if transient and headers is not None else None
    except Exception:  # noqa: BLE001 - headers of whatever library
        asked = None
    return Verdict(transient, asked)


def _tabled(exc: BaseException) -> Verdict:
    for cls, name in zip(type(exc).__mro__, _names(exc), strict=True):
        if cls in TRANSIENT or name in TRANSIENT_NAMES:
            return Verdict(True)
        if cls in PERMANENT or name in PERMANENT_NAMES:
            return Verdict(False)
    return Verdict(True)


def _names(exc: BaseException) -> Iterator[str]:
    """Module and name of each class of the exception, psycopg's and httpx's inner modules apart."""
    for cls in type(exc).__mro__:
        module = str(cls.__module__)
        if module.startswith(("psycopg.", "httpx.")):
            module = module.partition(".")[0]
        yield f"{module}.{cls.__name__}"
