"""Verdicts depend on classes and codes, whatever an exception says or does."""

import asyncio
import concurrent.futures
import decimal
import http.client
import json
import logging
import smtplib
import socket
import ssl
import subprocess
import urllib.error
from collections.abc import Callable
from datetime import timedelta
from email.message import Message
from typing import Any

import django.db
import httpx
import psycopg
import pytest
import redis
import requests
import urllib3
from django.core import exceptions as django_errors
from django.http import Http404

from runcontract.contract.classify import Verdict, classify
from runcontract.exceptions import (
    InvalidRun,
    PermanentError,
    RunCancelled,
    RunTimedOut,
    TransientError,
    TransportUnavailable,
)

AGAIN, NEVER = Verdict(transient=True), Verdict(transient=False)
URL = "https://api.example/x"
STATE = {
    error.sqlstate: error
    for error in vars(psycopg.errors).values()
    if getattr(error, "sqlstate", None)
}


def name_of(value: Any) -> str:
    return type(value).__name__ if isinstance(value, BaseException) else repr(value)[:40]


def of_requests(status: int, headers: dict[str, str] | None = None) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    response.headers.update(headers or {})
    return requests.HTTPError(response=response)


def of_httpx(status: int, headers: dict[str, str] | None = None) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", URL)
    response = httpx.Response(status, headers=headers, request=request)
    return httpx.HTTPStatusError("failed", request=request, response=response)


def of_urllib(status: int, headers: dict[str, str] | None = None) -> urllib.error.HTTPError:
    message = Message()
    for name, value in (headers or {}).items():
        message[name] = value
    return urllib.error.HTTPError(URL, status, "failed", message, None)


def wrapped(wrapper: type[BaseException], cause: BaseException) -> BaseException:
    error = wrapper("failed")
    error.__cause__ = cause
    return error


CLIENTS = [of_requests, of_httpx, of_urllib]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_a_server_in_trouble_is_asked_again(
    client: Callable[..., BaseException], status: int
) -> None:
    assert classify(client(status)) == AGAIN
    assert classify(client(status, {"Retry-After": "120"})) == Verdict(True, "120")
    assert classify(client(status, {"x-other": "1", "retry-after": "7"})) == Verdict(True, "7")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 410, 418, 422, 451, 499])
def test_a_request_that_the_server_refuses_is_not_repeated(
    client: Callable[..., BaseException], status: int
) -> None:
    assert classify(client(status, {"Retry-After": "120"})) == NEVER


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [200, 302, 304, 600])
def test_a_status_that_is_no_error_is_unknown(
    client: Callable[..., BaseException], status: int
) -> None:
    assert classify(client(status)) == AGAIN


TRANSIENT: list[BaseException] = [
    TransportUnavailable(),
    RunTimedOut(),
    *(TimeoutError(), concurrent.futures.TimeoutError()),  # asyncio.TimeoutError, socket.timeout
    *(ConnectionError(), ConnectionRefusedError(), ConnectionResetError(), BrokenPipeError()),
    *(socket.gaierror(-2, "x"), socket.herror(), ssl.SSLError(), ssl.SSLCertVerificationError()),
    *(ImportError(), ModuleNotFoundError(), SyntaxError(), MemoryError()),
    *(
        http.client.IncompleteRead(b""),
        http.client.RemoteDisconnected("x"),
        http.client.BadStatusLine(""),
    ),
    *(subprocess.TimeoutExpired("x", 1), urllib.error.URLError("x")),
    *(urllib3.exceptions.ProtocolError(), urllib3.exceptions.MaxRetryError(None, "x")),  # type: ignore[arg-type]
    *(
        requests.ConnectionError(),
        requests.Timeout(),
        requests.ConnectTimeout(),
        requests.HTTPError("401"),
    ),
    *(requests.exceptions.ChunkedEncodingError(), requests.exceptions.SSLError()),
    *(requests.exceptions.JSONDecodeError("x", "", 0), json.JSONDecodeError("x", "", 0)),
    *(
        httpx.ConnectError("x"),
        httpx.ReadTimeout("x"),
        httpx.PoolTimeout("x"),
        httpx.DecodingError("x"),
    ),
    *(httpx.RemoteProtocolError("x"), httpx.ProxyError("x")),
    *(
        smtplib.SMTPServerDisconnected(),
        smtplib.SMTPConnectError(421, b""),
        smtplib.SMTPException(),
    ),
    *(smtplib.SMTPDataError(451, b""), smtplib.SMTPSenderRefused(452, b"", "a")),
    *(smtplib.SMTPConnectError(-1, b""), smtplib.SMTPResponseException("x", b"")),  # type: ignore[arg-type]
    smtplib.SMTPRecipientsRefused({"a": (450, b""), "b": (451, b"")}),
    smtplib.SMTPRecipientsRefused({"a": (550, b""), "b": (451, b"")}),
    smtplib.SMTPRecipientsRefused({}),
    smtplib.SMTPRecipientsRefused({"a": b"550"}),  # type: ignore[dict-item]
    *(django.db.OperationalError(), django.db.InterfaceError()),
    *(psycopg.OperationalError(), psycopg.InterfaceError(), psycopg.errors.QueryCanceled()),
    *(
        redis.ConnectionError(),
        redis.TimeoutError(),
        redis.BusyLoadingError(),
        redis.ReadOnlyError(),
    ),
    *(redis.ResponseError(), redis.exceptions.LockError("x"), redis.RedisError()),
    # unknown
    *(Exception(), RuntimeError(), OSError(), ValueError(), StopIteration(), EOFError()),
    *(
        SystemExit(0),
        SystemExit("x"),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
    ),
    type("Evil", (BaseException,), {})(),
]


@pytest.mark.parametrize("exc", TRANSIENT, ids=name_of)
def test_it_is_run_again(exc: BaseException) -> None:
    assert classify(exc) == AGAIN


PERMANENT: list[BaseException] = [
    *(PermanentError(), InvalidRun(), RunCancelled()),
    *(TypeError(), AttributeError(), NameError(), UnboundLocalError(), AssertionError()),
    *(KeyError("x"), IndexError(), LookupError(), NotImplementedError(), RecursionError()),
    *(ZeroDivisionError(), OverflowError(), decimal.InvalidOperation()),
    *(UnicodeDecodeError("ascii", b"\xff", 0, 1, "x"), UnicodeEncodeError("ascii", "ж", 0, 1, "x")),
    *(django_errors.ValidationError("x"), django_errors.ObjectDoesNotExist(), Http404()),
    *(
        django_errors.MultipleObjectsReturned(),
        django_errors.FieldError(),
        django_errors.PermissionDenied(),
    ),
    *(django_errors.SuspiciousOperation(), django_errors.FieldDoesNotExist()),
    *(django.db.IntegrityError(), django.db.DataError(), django.db.ProgrammingError()),
    *(django.db.models.ProtectedError("x", set()), django.db.models.RestrictedError("x", set())),
    *(django.db.DatabaseError(), django.db.transaction.TransactionManagementError()),
    *(psycopg.IntegrityError(), psycopg.DataError(), psycopg.errors.UndefinedColumn()),
    *(
        requests.exceptions.MissingSchema(),
        requests.exceptions.InvalidURL(),
        requests.TooManyRedirects(),
    ),
    *(requests.exceptions.InvalidProxyURL(), requests.exceptions.InvalidJSONError()),
    *(httpx.UnsupportedProtocol("x"), httpx.InvalidURL("x"), httpx.TooManyRedirects("x")),
    *(http.client.InvalidURL(), urllib3.exceptions.LocationParseError("x"), redis.DataError()),
    *(smtplib.SMTPAuthenticationError(535, b""), smtplib.SMTPSenderRefused(553, b"", "a")),
    *(
        smtplib.SMTPConnectError(554, b""),
        smtplib.SMTPDataError(554, b""),
        smtplib.SMTPNotSupportedError(),
    ),
    smtplib.SMTPRecipientsRefused({"a": (550, b""), "b": (553, b"")}),
]


@pytest.mark.parametrize("exc", PERMANENT, ids=name_of)
def test_it_fails_at_once(exc: BaseException) -> None:
    assert classify(exc) == NEVER


@pytest.mark.parametrize(
    ("state", "wrapper", "transient"),
    [
        ("40001", django.db.OperationalError, True),  # serialization failure
        ("40P01", django.db.OperationalError, True),  # deadlock
        ("55P03", django.db.OperationalError, True),  # lock not available
        ("57014", django.db.OperationalError, True),  # statement timeout
        ("57P01", django.db.OperationalError, True),  # server stops
        ("53300", django.db.OperationalError, True),  # too many connections
        ("08006", django.db.OperationalError, True),
        ("25006", django.db.InternalError, True),  # read-only after a failover
        ("25P03", django.db.InternalError, True),  # idle session ended
        ("25P02", django.db.InternalError, False),  # transaction already broken
        ("54000", django.db.OperationalError, False),  # H35: no index row holds it
        ("23505", django.db.IntegrityError, False),
        ("42703", django.db.ProgrammingError, False),
    ],
)
def test_a_database_error_is_judged_by_its_sqlstate(
    state: str, wrapper: type[BaseException], transient: bool
) -> None:
    assert classify(wrapped(wrapper, STATE[state]())).transient is transient
    assert classify(STATE[state]()).transient is transient


def test_the_older_psycopg_names_its_sqlstate_otherwise() -> None:
    cause = type("OperationalError", (Exception,), {"__module__": "psycopg2", "pgcode": "54000"})()
    assert classify(cause) == NEVER
    assert classify(wrapped(django.db.OperationalError, cause)) == NEVER


def test_a_cause_decides_nothing_elsewhere() -> None:
    assert classify(wrapped(TypeError, ConnectionError())) == NEVER
    assert classify(wrapped(RuntimeError, TypeError())) == AGAIN


def test_a_subclass_is_judged_like_its_nearest_known_base() -> None:
    class Missing(django_errors.ObjectDoesNotExist):
        pass

    class Late(TypeError, TimeoutError):
        pass

    assert classify(Missing()) == NEVER
    assert classify(Late()) == NEVER


def test_the_consumers_own_errors_mean_what_they_say() -> None:
    class Busy(TransientError, TypeError):
        def __init__(self) -> None:
            pass

    both = type("Both", (TransientError, PermanentError), {})
    assert classify(TransientError("x", retry_after="120")) == Verdict(True, "120")
    assert classify(Busy()) == AGAIN
    assert classify(both()) == NEVER


def test_the_policys_classify_comes_before_the_table_and_after_the_consumers_errors() -> None:
    def contrary(exc: BaseException) -> Verdict:
        return Verdict(not isinstance(exc, TimeoutError), retry_after=5)

    assert classify(TypeError(), contrary) == Verdict(True, 5)
    assert classify(TimeoutError(), contrary) == Verdict(False, 5)
    assert classify(PermanentError(), contrary) == NEVER
    assert classify(TransientError(), contrary) == AGAIN


def test_a_classify_without_an_answer_leaves_it_to_the_table() -> None:
    assert classify(TypeError(), lambda exc: None) == NEVER
    assert classify(TimeoutError(), lambda exc: None) == AGAIN


def broken(exc: BaseException) -> Verdict:
    raise SystemExit("SECRET")


def mistaken(exc: BaseException) -> Any:
    return True


class Refusing(logging.Handler):
    """A handler that raises, as some of the field do."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError


@pytest.mark.parametrize(("own", "reason"), [(broken, "SystemExit"), (mistaken, "TypeError")])
def test_a_classify_that_fails_is_logged_and_left_out(
    own: Callable[[BaseException], Verdict], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert classify(KeyError(), own) == NEVER
    assert caplog.messages == [
        f"The policy's classify failed with {reason} on KeyError; the built-in table decides."
    ]


def test_a_logger_that_raises_does_not_prevent_the_verdict() -> None:
    logger, handler = logging.getLogger("runcontract"), Refusing()
    logger.addHandler(handler)
    try:
        assert classify(KeyError(), broken) == NEVER
    finally:
        logger.removeHandler(handler)


def test_a_group_is_run_again_only_if_all_its_members_are() -> None:
    good, bad = [TimeoutError(), OSError()], TypeError()
    assert classify(ExceptionGroup("x", good)) == AGAIN
    assert classify(ExceptionGroup("x", [*good, bad])) == NEVER
    assert classify(ExceptionGroup("x", [*good, ExceptionGroup("y", [ValueError(), bad])])) == NEVER
    assert classify(BaseExceptionGroup("x", [KeyboardInterrupt(), *good])) == AGAIN


def test_a_group_waits_as_long_as_its_most_patient_member_asks() -> None:
    group = ExceptionGroup(
        "x",
        [
            of_httpx(429, {"retry-after": "7"}),
            TransientError(retry_after=90),
            TransientError(retry_after=8),
        ],
    )
    assert classify(group) == Verdict(True, timedelta(seconds=90))


def test_a_group_of_a_thousand_and_one_three_thousand_deep_are_judged() -> None:
    deep: Exception = TypeError()
    for _ in range(3_000):
        deep = ExceptionGroup("x", [deep])
    assert classify(deep) == NEVER
    assert classify(ExceptionGroup("x", [OSError()] * 999 + [TypeError()])) == NEVER


def test_the_policys_classify_is_asked_about_groups_and_members() -> None:
    asked: list[str] = []

    def own(exc: BaseException) -> Verdict | None:
        asked.append(type(exc).__name__)
        return NEVER if isinstance(exc, OSError) else None

    assert classify(ExceptionGroup("x", [OSError(), RuntimeError()]), own) == NEVER
    assert sorted(asked) == ["ExceptionGroup", "OSError", "RuntimeError"]
    assert classify(ExceptionGroup("x", [TypeError()]), lambda exc: AGAIN) == AGAIN


class Hostile(requests.HTTPError):
    """An error that raises whatever is asked of it."""

    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__

    def __getattribute__(self, name: str) -> Any:
        raise KeyboardInterrupt

    def __eq__(self, other: object) -> bool:
        raise SystemExit

    def __bool__(self) -> bool:
        raise SystemExit

    __hash__ = None  # type: ignore[assignment]


class Headers(dict[str, str]):
    def __iter__(self) -> Any:
        raise RuntimeError


def test_an_error_that_raises_on_every_question_is_judged_by_its_class() -> None:
    assert classify(Hostile()) == AGAIN
    assert classify(ExceptionGroup("x", [Hostile()])) == AGAIN
    assert (
        classify(
            type("Refused", (Hostile, smtplib.SMTPDataError), {"__init__": lambda self: None})()
        )
        == AGAIN
    )


def test_headers_that_cannot_be_read_ask_for_nothing() -> None:
    error = of_requests(503)
    error.response.headers = Headers({"Retry-After": "7"})
    assert classify(error) == AGAIN
