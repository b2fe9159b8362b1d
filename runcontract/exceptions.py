"""Every error of this package: one family, each a sentence with its data as attributes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any


class RunContractError(Exception):
    """The family. Catch this to catch everything that runcontract raises."""


class ConfigurationError(RunContractError):
    """A setting or a policy cannot work as written."""


class InvalidRun(RunContractError, ValueError):
    """What was given to enqueue cannot become a run; nothing was written or sent."""


class LeaseLost(RunContractError):
    """The run is no longer ours: it was reaped, cancelled, deleted or claimed again."""

    def __init__(self, label: str, pk: Any, lease: int) -> None:
        self.label, self.pk, self.lease = label, pk, lease
        super().__init__(f"{label} {pk} is no longer held under lease {lease}.")


class TransientError(RunContractError):
    """Raise it in `perform` to be run again later.

    `retry_after` is a lower bound for the pause: seconds, a timedelta, an aware datetime or
    the text of a Retry-After header in either of its forms.
    """

    def __init__(
        self, *args: object, retry_after: float | str | timedelta | datetime | None = None
    ) -> None:
        super().__init__(*args)
        self.retry_after = retry_after


class PermanentError(RunContractError):
    """Raise it in `perform` when running again cannot help: the run fails at once."""


class TransportUnavailable(RunContractError):
    """Redis did not answer, or refused; the journal is untouched and the sweep will send."""


class Interrupted(BaseException):
    """Raised inside a running `perform`. A BaseException, so `except Exception` lets it pass."""


class RunCancelled(Interrupted):
    """Somebody asked for this run to be cancelled."""


class RunTimedOut(Interrupted):
    """The policy's `timeout` has passed."""


class RunInterrupted(Interrupted):
    """The worker must give this run up: it drains, or it lost the lease or the database."""
