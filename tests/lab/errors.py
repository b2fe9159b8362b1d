"""Errors as jobs in the field raise them, each made by a name: `fail` takes it as its `kind`."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import requests
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import OperationalError

from runcontract import PermanentError, TransientError

ERRORS: dict[str, Callable[[], BaseException]] = {}


def throw(error: BaseException) -> NoReturn:
    """`raise`, where only an expression fits."""
    raise error


def error(function: Callable[[], BaseException]) -> Callable[[], BaseException]:
    """Make a function the maker of an error of that name."""
    ERRORS[function.__name__] = function
    return function


# Ordinary

ERRORS |= {
    "transient": lambda: TransientError("busy"),
    "wait_an_hour": lambda: TransientError("busy", retry_after=3600),
    "permanent": lambda: PermanentError("no"),
    "timeout": lambda: TimeoutError("timed out"),
    "connection": lambda: ConnectionResetError(104, "Connection reset by peer"),
    "database": lambda: OperationalError("server closed the connection unexpectedly"),
    "missing": lambda: ObjectDoesNotExist("Order matching query does not exist."),
    "invalid": lambda: ValidationError("not valid"),
    "type": lambda: TypeError("unexpected"),
    "unknown": lambda: RuntimeError("nobody knows"),
}


def http(status: int, **headers: str) -> requests.HTTPError:
    """What `raise_for_status` of requests raises."""
    response = requests.Response()
    response.status_code = status
    response.headers.update({key.replace("_", "-"): value for key, value in headers.items()})
    return requests.HTTPError(f"{status} for url https://api.example/", response=response)


ERRORS |= {
    "http_404": lambda: http(404),
    "http_429": lambda: http(429, Retry_After="1"),
    "http_503": lambda: http(503),
}

# Texts that Postgres or UTF-8 refuses (H03)

ERRORS |= {
    "nul": lambda: ValueError("a\x00b"),
    "surrogate": lambda: ValueError("a\ud800b"),
    "filename": lambda: OSError(2, "x", os.fsdecode(b"\xff\xfe")),
    "bytes": lambda: Exception(b"\x00\xff"),
    "cyrillic": lambda: Exception("ж" * 100),
    "control": lambda: Exception("a\x1b[31mred\x08\x08b"),
    "empty": lambda: Exception(),
    "huge": lambda: ValueError("я" * 5_000_000),
    "huge_line": lambda: deep(200, "x" * 10_000_000),
}

# Not an Exception (H12)


class Evil(BaseException):
    """Slips past `except Exception`."""


ERRORS |= {
    "exit": lambda: SystemExit(),
    "exit_0": lambda: SystemExit(0),
    "exit_text": lambda: SystemExit("text"),
    "interrupt": lambda: KeyboardInterrupt(),
    "generator_exit": lambda: GeneratorExit(),
    "cancelled": lambda: asyncio.CancelledError(),
    "evil": lambda: Evil("evil"),
    "memory": lambda: MemoryError(),
    "stop_iteration": lambda: StopIteration(),
}


@error
def recursion() -> BaseException:
    return recursion()


# Errors that fight back (H13)


class StrRaises(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


class StrIsNone(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]


class StrRecurses(Exception):
    def __str__(self) -> str:
        return str(self)


class NotPickled(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__("two arguments")
        self.a, self.b = a, b


class NoTruth(Exception):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")

    __hash__ = Exception.__hash__


class ReprRaises:
    def __repr__(self) -> str:
        raise RuntimeError("no repr for you")


ERRORS |= {
    "str_raises": lambda: StrRaises("x"),
    "str_is_none": lambda: StrIsNone("x"),
    "str_recurses": lambda: StrRecurses("x"),
    "not_pickled": lambda: NotPickled(1, 2),
    "holds_a_lock": lambda: ValueError(threading.Lock()),
    "no_truth": lambda: NoTruth("x"),
    "repr_raises": lambda: ValueError(ReprRaises()),
    "long_name": lambda: type("E" * 10_000, (Exception,), {})("x"),
    "group": lambda: ExceptionGroup("many", [ValueError(str(n)) for n in range(1_000)]),
}


@error
def local_class() -> BaseException:
    class Local(Exception):
        pass

    return Local("defined in a function")


@error
def own_cause() -> BaseException:
    mine = ValueError("its own cause")
    mine.__cause__ = mine
    return mine


@error
def long_chain() -> BaseException:
    last = ValueError("the first of 3000")
    for number in range(3_000):
        following = ValueError(f"link {number}")
        following.__cause__ = last
        last = following
    return last


@error
def many_notes() -> BaseException:
    noted = ValueError("noted")
    for number in range(100):
        noted.add_note(f"note {number}")
    return noted


def deep(depth: int, text: str) -> BaseException:
    """Raise from far down the stack."""
    if depth:
        return deep(depth - 1, text)
    raise ValueError(text)


class Undeletable:
    def __del__(self) -> None:
        raise ValueError("from __del__")


class RaisingHandler(logging.Handler):
    """A log handler that raises instead of logging."""

    def handle(self, record: logging.LogRecord) -> Any:
        raise RuntimeError("the log handler is broken")
