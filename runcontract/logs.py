"""Logging of the commands: a handler only where the project has none."""

from __future__ import annotations

import logging

_LEVELS = {0: logging.ERROR, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}


def log_to_terminal(verbosity: int) -> None:
    """Log `runcontract` to stderr unless the project's LOGGING already handles it."""
    logger = logging.getLogger("runcontract")
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(_LEVELS[verbosity])
    logger.propagate = False
