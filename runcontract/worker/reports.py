"""What a child and its supervisor tell each other: one line each, over a pipe.

A line is shorter than PIPE_BUF, so it arrives whole. A child reports the address before the
claim, the lease before perform, and the end of perform before it settles: whatever moment it dies
at, the supervisor knows what may have happened.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from enum import StrEnum

RECYCLED, DONE, GAVE_UP, BROKEN = 0, 10, 11, 12
"""Exit codes of a child: replace me; I am done; I left a run for you; I could not work."""


JOURNAL = (0, 0)
"""Key and lease of a claim from the journal, which does not know yet what it will get."""


class Phase(StrEnum):
    """What a child is doing."""

    IDLE = "idle"
    TAKING = "taking"
    """A claim is under way; it may have been committed."""
    PERFORMING = "performing"
    PAUSING = "pausing"
    """Between two attempts of one claim."""
    SETTLING = "settling"
    """Perform has ended; nothing may stop the child now."""


STOP = b"stop\n"
"""The order that names no run: take nothing more."""


class Order(StrEnum):
    """What a supervisor tells a child to do with the run that it names."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    GIVE_UP = "give-up"
    """The worker drains, or it lost the database or the lease: stop and write nothing."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A claim: which run, under which lease. While TAKING, the lease it was queued under."""

    label: str
    pk: int | uuid.UUID
    lease: int

    def __str__(self) -> str:
        return f"{self.label} {self.pk} {self.lease}"

    @classmethod
    def parse(cls, label: str, pk: str, lease: str) -> Hold:
        key = uuid.UUID(pk) if "-" in pk[1:] else int(pk)
        return cls(label, key, int(lease))


@dataclass(frozen=True, slots=True)
class Report:
    """A child's phase, its claim, and how many seconds the attempt that begins now may take."""

    phase: Phase
    hold: Hold | None = None
    timeout: float | None = None

    def encode(self) -> bytes:
        limit = "-" if self.timeout is None else f"{self.timeout:.3f}"
        return f"{self.phase} {self.hold or '- - -'} {limit}\n".encode()

    @classmethod
    def parse(cls, line: bytes) -> Report:
        """Raises ValueError for what no child has written."""
        phase, label, pk, lease, limit = line.decode().split(" ")
        hold = None if label == "-" else Hold.parse(label, pk, lease)
        return cls(Phase(phase), hold, None if limit == "-" else float(limit))


def encode_order(order: Order, hold: Hold) -> bytes:
    """The line that tells a child to do this with its run."""
    return f"{order} {hold}\n".encode()


def parse_order(line: bytes) -> tuple[Order, Hold] | None:
    """What to do with which run; None says to take nothing more."""
    if line + b"\n" == STOP:
        return None
    order, label, pk, lease = line.decode().split(" ")
    return Order(order), Hold.parse(label, pk, lease)


class LineReader:
    """Whole lines from a non-blocking descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._rest = b""
        os.set_blocking(descriptor, False)

    def lines(self) -> list[bytes]:
        """The lines that have arrived; empty if there are none."""
        parts = [self._rest]
        while True:
            try:
                data = os.read(self.descriptor, 65_536)
            except BlockingIOError:
                break
            except OSError:
                break
            if not data:
                break
            parts.append(data)
        *whole, self._rest = b"".join(parts).split(b"\n")
        return whole


def tell(descriptor: int, data: bytes) -> bool:
    """Write a line; False if nobody listens any more."""
    try:
        os.write(descriptor, data)
    except OSError:
        return False
    return True
