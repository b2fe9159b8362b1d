"""What tests ask about the lab's runs."""

import uuid
from typing import Any

from tests.lab.models import Effect, MailRun

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


def at_work(run: Any, timeout: float = 20) -> Any:
    """The run, read again once its job has begun to work under its present lease."""
    in_state(run, "running", timeout=timeout)

    def look() -> Any:
        run.refresh_from_db()
        return run.lease in [line.lease for line in effects(run)]

    eventually(look, timeout)
    return run


def canary(worker: Any, lane: str = "default") -> None:
    """An ordinary run enqueued now is executed within ten seconds."""
    run = MailRun.objects.enqueue(job_id=f"canary {uuid.uuid4()}", lane=lane).run
    try:
        assert ended(run, 10).state == "succeeded", run.last_error
    except AssertionError as error:
        raise AssertionError(f"{error}\n{worker.log}") from None
