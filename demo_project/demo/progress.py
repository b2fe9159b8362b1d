"""What the terminal shows: a table that moves, or plain lines where it is no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from .counts import Snapshot
from .processes import Kept, children

PLAIN_EVERY = 5.0
"""Seconds between two plain lines."""

COLUMNS = ("queued", "waiting", "running", "succeeded", "failed", "lost")


class Progress:
    """Shows snapshots and tells news. A context manager: the terminal is given back at its end."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._said, self._at = "", 0.0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the terminal back; what is said from now on stands below the last figures."""
        if self._live:
            self._live.stop()

    def announce(self, markup: str) -> None:
        """Lines that stand under the figures, or once where nothing moves."""
        if not self._live:
            self.console.print(markup, highlight=False, soft_wrap=True)

    def say(self, news: str) -> None:
        """One line that stays."""
        line = f"[dim]{time.strftime('%H:%M:%S')}[/] {escape(news)}"
        self.console.print(line, highlight=False, soft_wrap=True)

    def show(self, snapshot: Snapshot, kept: Iterable[Kept], footer: str) -> None:
        """The newest figures."""
        if self._live:
            lines = Text.from_markup(footer)
            self._live.update(Group(table(snapshot), processes(kept), lines), refresh=True)
        elif time.monotonic() - self._at >= PLAIN_EVERY and (line := plain(snapshot)) != self._said:
            self._said, self._at = line, time.monotonic()
            self.say(line)


def table(snapshot: Snapshot) -> Table:
    """A line for each run model."""
    drawn = Table(box=None, header_style="bold", padding=(0, 2), caption_justify="left")
    drawn.add_column("app", no_wrap=True)
    drawn.add_column("runs", no_wrap=True)
    for column in COLUMNS:
        drawn.add_column("lost workers" if column == "lost" else column, justify="right")
    for each in snapshot.runs:
        drawn.add_row(each.app, each.name, *(str(getattr(each, column)) for column in COLUMNS))
    drawn.caption = (
        f"{snapshot.dead_letters} dead letters, {snapshot.answers} answers, "
        f"{snapshot.not_delivered} not delivered, {snapshot.per_second:.1f} runs ended per second"
    )
    return drawn


def processes(kept: Iterable[Kept]) -> Text:
    """Each process with its pid, to be killed by whoever likes to."""
    return Text("pids: " + ", ".join(map(_process, kept)), style="dim")


def _process(kept: Kept) -> str:
    pid = kept.service.pid
    again = f", started {kept.restarts + 1} times" if kept.restarts else ""
    if pid is None or kept.service.returncode is not None:
        return f"{kept.service.name} is dead{again}"
    below = children(pid) if kept.service.name == "worker" else []
    return f"{kept.service.name} {pid}{' > ' if below else ''}{' '.join(map(str, below))}{again}"


def plain(snapshot: Snapshot) -> str:
    """All models in one line."""
    totals = (f"{sum(getattr(e, column) for e in snapshot.runs)} {column}" for column in COLUMNS)
    return f"{', '.join(totals)} workers, {snapshot.dead_letters} dead letters"
