"""The clock of the self-fence: it goes on while the machine sleeps."""

from __future__ import annotations

import time

_BOOT = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds since some fixed moment, suspended time included where the system can tell."""
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)
