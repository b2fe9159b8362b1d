"""The work that costs nothing, for RQ's own worker: no Django in sight."""


def noop() -> None:
    """Nothing."""
