"""The table of known exceptions, by name, so that none of these packages has to be installed.

A name is what `scribe.name_of` makes of a class: "module.Class", builtins without module.
The entry of the most derived class decides. Whoever is missing here is unknown: transient, up to
the cap, for a needless attempt costs minutes and a run given up too early costs somebody's work.
"""

from __future__ import annotations

from enum import Enum, auto


class Kind(Enum):
    """How an exception is judged."""

    TRANSIENT = auto()
    """Run again: the other side, or the moment, was at fault."""
    PERMANENT = auto()
    """The same run meets the same error."""
    HTTP = auto()
    """By the status of the response."""
    SMTP = auto()
    """By the reply code, or by the codes of the refused recipients."""
    DATABASE = auto()
    """By the SQLSTATE; by the class where that says nothing."""
    DATABASE_DOWN = auto()
    """Like DATABASE, and transient where the SQLSTATE says nothing."""


_NAMES: dict[Kind, str] = {
    Kind.TRANSIENT: """
        runcontract.exceptions.RunTimedOut
        runcontract.exceptions.TransportUnavailable
        TimeoutError
        ConnectionError
        ImportError
        SyntaxError
        MemoryError
        socket.gaierror
        socket.herror
        ssl.SSLError
        http.client.HTTPException
        subprocess.TimeoutExpired
        urllib.error.URLError
        urllib3.exceptions.HTTPError
        requests.exceptions.RequestException
        requests.exceptions.JSONDecodeError
        httpx.HTTPError
        redis.exceptions.RedisError
        valkey.exceptions.ValkeyError
    """,
    Kind.PERMANENT: """
        runcontract.exceptions.InvalidRun
        runcontract.exceptions.RunCancelled
        ArithmeticError
        AssertionError
        AttributeError
        LookupError
        NameError
        NotImplementedError
        RecursionError
        TypeError
        UnicodeError
        django.core.exceptions.FieldDoesNotExist
        django.core.exceptions.FieldError
        django.core.exceptions.MultipleObjectsReturned
        django.core.exceptions.ObjectDoesNotExist
        django.core.exceptions.PermissionDenied
        django.core.exceptions.SuspiciousOperation
        django.core.exceptions.ValidationError
        django.db.models.deletion.ProtectedError
        django.db.models.deletion.RestrictedError
        django.http.response.Http404
        http.client.InvalidURL
        httpx.InvalidURL
        httpx.LocalProtocolError
        httpx.TooManyRedirects
        httpx.UnsupportedProtocol
        redis.exceptions.DataError
        requests.exceptions.InvalidHeader
        requests.exceptions.InvalidJSONError
        requests.exceptions.InvalidSchema
        requests.exceptions.InvalidURL
        requests.exceptions.MissingSchema
        requests.exceptions.TooManyRedirects
        smtplib.SMTPNotSupportedError
        urllib3.exceptions.LocationValueError
        valkey.exceptions.DataError
    """,
    Kind.HTTP: """
        httpx.HTTPStatusError
        requests.exceptions.HTTPError
        urllib.error.HTTPError
    """,
    Kind.SMTP: """
        smtplib.SMTPException
    """,
    Kind.DATABASE: """
        django.db.utils.DatabaseError
        psycopg.DatabaseError
        psycopg2.DatabaseError
    """,
    Kind.DATABASE_DOWN: """
        django.db.utils.InterfaceError
        django.db.utils.OperationalError
        psycopg.InterfaceError
        psycopg.OperationalError
        psycopg2.InterfaceError
        psycopg2.OperationalError
    """,
}

KNOWN: dict[str, Kind] = {name: kind for kind, names in _NAMES.items() for name in names.split()}
"""qualified class name: how it is judged"""

# ValueError is missing: too many libraries raise it for a broken answer of the other side, such as
# an outage's HTML page where JSON was promised. UnicodeError is not: stored text does not change.
# ImportError and SyntaxError are transient: in a rolling deploy the code may be on its way.
# MemoryError is transient: the neighbours' memory may be free next time. RecursionError is not.
# SystemExit, KeyboardInterrupt, GeneratorExit and CancelledError that a job raises are failures
# like any other, and unknown ones: they never stop the worker.

TRANSIENT_STATUSES = frozenset({408, 425, 429, *range(500, 600)})
"""HTTP; every other 4xx is permanent, and what is no error status at all is unknown."""

TRANSIENT_SQLSTATES = ("08", "25006", "25P03", "40", "53", "55", "57", "58", "XX")
"""Connections, a failover's read-only server, an idle session that was ended, serialization
failures and deadlocks, resources, locks, operators and timeouts, the system, Postgres itself."""
PERMANENT_SQLSTATES = ("54",)
"""A limit of the program, such as a value that no index row can hold: an OperationalError in
Django and psycopg, but the same one at every attempt."""
