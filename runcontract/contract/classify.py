"""Which errors are worth another attempt: decided by classes and codes, never by texts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..exceptions import PermanentError, TransientError
from .guard import guarded
from .known_errors import (
    KNOWN,
    PERMANENT_SQLSTATES,
    TRANSIENT_SQLSTATES,
    TRANSIENT_STATUSES,
    Kind,
)
from .retry_after import parse_retry_after
from .scribe import base_value, name_of

logger = logging.getLogger("runcontract")

_SECONDS = 5.0
"""For the consumer's own classify."""
_MEMBERS = 10_000
"""Members of a group that are looked at."""


@dataclass(frozen=True)
class Verdict:
    """`transient`: run again. `retry_after`: what the other side asked for, as it said it."""

    transient: bool
    retry_after: Any = None


Classify = Callable[[BaseException], Verdict | None]


def classify(exc: BaseException, own: Classify | None = None) -> Verdict:
    """Whether `exc` is worth another attempt. Never raises.

    In this order: TransientError and PermanentError mean what they say; then the consumer's `own`
    may answer; then the table of known errors; what nobody knows is transient. A group is
    transient if each member is, and waits as long as the most patient one asks. An `own` that
    raises, takes over five seconds or answers something else is logged and left out.
    """
    if own is None:
        return _judge(exc, _no_answer)
    return guarded(lambda: _judge(exc, own), lambda error: _without_own(exc, type(error)), _SECONDS)


def _no_answer(exc: BaseException) -> None:
    return None


def _without_own(exc: BaseException, reason: type[BaseException]) -> Verdict:
    """The table's verdict, after a line about the consumer's classify; no logger may prevent it."""
    sentence = "The policy's classify failed with %s on %s; the built-in table decides."
    names = name_of(reason), name_of(type(exc))
    guarded(lambda: logger.warning(sentence, *names), lambda error: None, _SECONDS)
    return _judge(exc, _no_answer)


def _judge(exc: BaseException, own: Classify) -> Verdict:
    if issubclass(type(exc), PermanentError):
        return Verdict(transient=False)
    if issubclass(type(exc), TransientError):
        return Verdict(transient=True, retry_after=_attribute(exc, "retry_after"))
    answer = own(exc)
    if isinstance(answer, Verdict):
        return answer
    if answer is not None:
        raise TypeError("classify must return a Verdict or None")
    if issubclass(type(exc), BaseExceptionGroup):
        return _together([_judge(member, own) for member in islice(_members(exc), _MEMBERS)])
    return _known(exc)


def _members(group: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group and in the groups in it, however deep."""
    waiting = [group]
    while waiting:
        exc = waiting.pop()
        if issubclass(type(exc), BaseExceptionGroup):
            waiting.extend(base_value(BaseExceptionGroup, "exceptions", exc))
        else:
            yield exc


def _together(verdicts: list[Verdict]) -> Verdict:
    asked = [wait for one in verdicts if (wait := parse_retry_after(one.retry_after)) is not None]
    return Verdict(all(one.transient for one in verdicts), max(asked, default=None))


def _known(exc: BaseException) -> Verdict:
    for cls in base_value(type, "__mro__", type(exc)):
        match KNOWN.get(name_of(cls)):
            case Kind.TRANSIENT:
                return Verdict(transient=True)
            case Kind.PERMANENT:
                return Verdict(transient=False)
            case Kind.HTTP:
                return _http(exc)
            case Kind.SMTP:
                return _smtp(exc)
            case Kind.DATABASE:
                return _database(exc, transient=False)
            case Kind.DATABASE_DOWN:
                return _database(exc, transient=True)
    return Verdict(transient=True)


def _http(exc: BaseException) -> Verdict:
    """By the status: of requests' and httpx's response, or of urllib's error itself."""
    response = _attribute(exc, "response")
    status = _attribute(response, "status_code") or _attribute(exc, "code")
    if isinstance(status, int) and 400 <= status < 500 and status not in TRANSIENT_STATUSES:
        return Verdict(transient=False)
    headers = _attribute(response, "headers") or _attribute(exc, "headers")
    return Verdict(transient=True, retry_after=_retry_after(headers))


def _retry_after(headers: Any) -> Any:
    def read() -> Any:
        names = (name for name in headers or () if name.lower() == "retry-after")
        return next((headers[name] for name in names), None)

    return _foreign(read)


def _smtp(exc: BaseException) -> Verdict:
    """Permanent if each reply is a 5xx: with one recipient left to hope for, it is run again."""
    refused = _foreign(lambda: [code for code, _ in exc.recipients.values()])  # type: ignore[attr-defined]
    codes = refused or [_attribute(exc, "smtp_code")]
    return Verdict(not all(isinstance(code, int) and 500 <= code < 600 for code in codes))


def _database(exc: BaseException, *, transient: bool) -> Verdict:
    """By the SQLSTATE, which Django's errors have in their cause, else as their class says."""
    for error in (exc, base_value(BaseException, "__cause__", exc)):
        state = _attribute(error, "sqlstate") or _attribute(error, "pgcode")
        if isinstance(state, str) and state.startswith(TRANSIENT_SQLSTATES):
            return Verdict(transient=True)
        if isinstance(state, str) and state.startswith(PERMANENT_SQLSTATES):
            return Verdict(transient=False)
    return Verdict(transient=transient)


def _attribute(thing: Any, name: str) -> Any:
    return _foreign(lambda: getattr(thing, name, None))


def _foreign(read: Callable[[], Any]) -> Any:
    return guarded(read, lambda error: None, _SECONDS)
