"""The work that costs nothing, so that only the way there and back is measured."""

from __future__ import annotations

from runcontract import RunContext
from runcontract.models import RetryContract


class NoopRun(RetryContract):
    """Does nothing."""

    class Meta(RetryContract.Meta):
        pass

    def perform(self, ctx: RunContext) -> None:
        """Nothing."""
