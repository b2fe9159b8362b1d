import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from runcontract import RunContext
from runcontract.contract import context as module
from runcontract.contract.context import COUNTS_KEPT, STEPS_KEPT
from runcontract.exceptions import LeaseLost, RunCancelled


class Told:
    """What a context reported, and what it is told."""

    def __init__(self) -> None:
        self.notes: list[Mapping[str, Any]] = []
        self.interrupt: BaseException | None = None
        self.refusal: BaseException | None = None

    def note(self, stats: Mapping[str, Any]) -> None:
        self.notes.append(stats)
        if self.refusal is not None:
            raise self.refusal

    def raise_for(self) -> None:
        if self.interrupt is not None:
            raise self.interrupt


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def ctx(told: Told) -> RunContext:
    return RunContext(job_id="j", attempt=2, lease=5, note=told.note, interrupt=told.raise_for)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each report is written, rather than one a second."""
    monkeypatch.setattr(module, "NOTE_EVERY", 0.0)


def test_a_context_names_its_run(ctx: RunContext) -> None:
    assert (ctx.job_id, ctx.attempt, ctx.lease) == ("j", 2, 5)


def test_a_step_is_timed_and_counts(ctx: RunContext) -> None:
    with ctx.step("fetch") as step:
        step.count(pages=1, bytes=10)
        step.count(pages=2)
    (stored,) = ctx.stats["steps"]
    assert stored["name"] == "fetch"
    assert stored["counts"] == {"pages": 3, "bytes": 10}
    assert stored["failed"] is False
    assert stored["seconds"] >= 0


def test_a_step_that_fails_is_marked_and_passes_its_error_on(ctx: RunContext) -> None:
    with pytest.raises(KeyError), ctx.step("store"):
        raise KeyError("x")
    (stored,) = ctx.stats["steps"]
    assert stored["failed"] is True
    assert "counts" not in stored


def test_a_step_under_way_has_no_duration_yet(ctx: RunContext) -> None:
    with ctx.step("fetch"):
        assert ctx.stats["steps"][0]["seconds"] is None


def test_steps_are_bounded_and_the_rest_is_counted(ctx: RunContext) -> None:
    for number in range(STEPS_KEPT + 3):
        with ctx.step(f"step {number}"):
            pass
    assert len(ctx.stats["steps"]) == STEPS_KEPT
    assert ctx.stats["steps_left_out"] == 3


def test_counts_are_bounded(ctx: RunContext) -> None:
    with ctx.step("fetch") as step:
        for number in range(COUNTS_KEPT + 50):
            step.count(**{f"page {number}": 1})
        step.count(**{"page 0": 1})
    assert len(ctx.stats["steps"][0]["counts"]) == COUNTS_KEPT
    assert ctx.stats["steps"][0]["counts"]["page 0"] == 2


def test_progress_has_a_total_only_if_it_is_known(ctx: RunContext) -> None:
    ctx.progress(3)
    assert ctx.stats == {"progress": {"done": 3}}
    ctx.progress(4, 10)
    assert ctx.stats == {"progress": {"done": 4, "total": 10}}


def test_nothing_that_json_or_postgres_refuses_is_stored(ctx: RunContext) -> None:
    counts: dict[str, Any] = {
        "n\x00" * 200: float("nan"),
        "inf": float("inf"),
        "exact": Decimal("1.5"),
    }
    with ctx.step("a\x00b\ud800" + "x" * 500) as step:
        step.count(**counts)
    ctx.progress(float("-inf"), float("nan"))
    text = json.dumps(ctx.stats, allow_nan=False, ensure_ascii=False)
    text.encode()
    assert "\\u0000" not in text
    assert len(text) < 2000
    assert sorted(ctx.stats["steps"][0]["counts"].values()) == [0.0, 0.0, 1.5]
    assert ctx.stats["progress"] == {"done": 0.0, "total": 0.0}


def test_many_reports_are_written_once_a_second(ctx: RunContext, told: Told) -> None:
    for number in range(1000):
        ctx.progress(number, 1000)
    assert len(told.notes) <= 1


@pytest.mark.usefixtures("at_once")
def test_a_report_carries_all_that_is_known(ctx: RunContext, told: Told) -> None:
    with ctx.step("fetch"):
        ctx.progress(1)
    assert told.notes[-1]["progress"] == {"done": 1}
    assert told.notes[-1]["steps"][0]["name"] == "fetch"


def test_check_raises_what_the_worker_was_told(ctx: RunContext, told: Told) -> None:
    ctx.check()
    told.interrupt = RunCancelled("asked")
    with pytest.raises(RunCancelled):
        ctx.check()


@pytest.mark.usefixtures("at_once")
def test_check_raises_when_the_lease_is_lost(ctx: RunContext, told: Told) -> None:
    told.refusal = LeaseLost("lab.mailrun", 1, 5)
    with pytest.raises(LeaseLost, match="no longer held under lease 5"):
        ctx.check()
