"""What was said in the log and still holds, so that nothing is said again at each tick."""

from __future__ import annotations

import logging

from ..exceptions import RunContractError
from ..lifecycle.database import DatabaseFailure

logger = logging.getLogger("runcontract.scheduler")


class Said:
    """A state is logged when it begins and when it is over."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Whether anything is wrong just now."""
        return bool(self._said)

    def begins(self, what: str, message: str) -> None:
        """Say it, unless that was the last that was said of this."""
        if self._said.get(what) != message:
            self._said[what] = message
            logger.error("%s", message)

    def fails(self, what: str, error: Exception) -> None:
        """Say what failed; its traceback too, unless the error is one that explains itself."""
        kind = type(error).__name__
        if self._said.get(what) == kind:
            return
        self._said[what] = kind
        if isinstance(error, (RunContractError, *DatabaseFailure)):
            first = (str(error).splitlines() or [kind])[0]
            logger.error("Failed, and is tried again: %s: %s", what, first)
        else:
            logger.error("Failed, and is tried again: %s", what, exc_info=error)

    def over(self, what: str) -> None:
        """Say that it is over, if it was said at all."""
        if self._said.pop(what, None) is not None:
            logger.warning("Over: %s", what)
