"""Background jobs for Django that cannot lose work.

The journal is the consumer's own Postgres table; Redis is only the transport.
"""

from .contract.classify import Verdict
from .contract.context import RunContext
from .contract.errors import RunError
from .contract.policy import RunPolicy
from .exceptions import (
    ConfigurationError,
    Interrupted,
    InvalidRun,
    LeaseLost,
    PermanentError,
    RunCancelled,
    RunContractError,
    RunInterrupted,
    RunTimedOut,
    TransientError,
    TransportUnavailable,
)

__version__ = "0.1.0"

__all__ = [
    "ConfigurationError",
    "Interrupted",
    "InvalidRun",
    "LeaseLost",
    "PermanentError",
    "RunCancelled",
    "RunContext",
    "RunContractError",
    "RunError",
    "RunInterrupted",
    "RunPolicy",
    "RunTimedOut",
    "TransientError",
    "TransportUnavailable",
    "Verdict",
]
