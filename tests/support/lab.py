"""What tests ask about the lab's runs."""

from typing import Any

from tests.lab.models import Effect

from .wait import eventually

TERMINAL = ("succeeded", "failed")


def ended(run: Any, timeout: float = 20) -> Any:
    """The run, read again once it is terminal."""

    def look() -> Any:
        run.refresh_from_db()
        assert run.state in TERMINAL, f"{run} is {run.state}"
        return run

    return eventually(look, timeout)


def in_state(run: Any, *states: str, timeout: float = 20) -> Any:
    """The run, read again once it is in one of these states."""

    def look() -> Any:
        run.refresh_from_db()
        assert run.state in states, f"{run} is {run.state}"
        return run

    return eventually(look, timeout)


def effects(run: Any) -> list[Effect]:
    """Each real execution of this run, oldest first."""
    return list(Effect.objects.filter(model=type(run).__name__, job_id=run.job_id))


def executed_once(run: Any) -> bool:
    """Whether it was executed exactly once, from start to end."""
    lines = effects(run)
    assert len(lines) == 1, lines
    return lines[0].end is not None
