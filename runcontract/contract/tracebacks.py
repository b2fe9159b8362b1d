"""Bounded tracebacks: like Python's own, without local variables.

Kept are the first and the last frames, the nearest causes and the root, a few notes and a few
members of a group; where something was left out, a line says how much.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from textwrap import indent
from types import TracebackType

from .scribe import Scribe, base_value, name_of
from .texts import both_ends

LIMIT = 24 * 1024
"""Bytes of a whole traceback; those of its parts follow."""
_FRAMES_LIMIT, _MESSAGE_LIMIT, _NOTE_LIMIT = 12 * 1024, 1024, 512
_LINE, _NAME = 1000, 300
"""Characters of a source line, and of a file's or a function's name."""
_CHAIN = 10_000
"""Causes that are looked at; of those the nearest few and the last are kept."""
_CAUSES, _NOTES = 4, 5
_MEMBERS = (5, 2)
"""Members kept of a group, and of a group in a group."""
_OWN_FRAMES, _MEMBER_FRAMES = (5, 20), (0, 3)
"""How many of the first and of the last frames are kept."""

_CAUSED = "The above exception was the direct cause of the following exception:"
_DURING = "During handling of the above exception, another exception occurred:"


def render(exc: BaseException, scribe: Scribe) -> str:
    """The traceback of `exc` with its causes, the root first, storable and bounded."""
    chain = [(exc, ""), *islice(_causes(exc), _CHAIN)]
    gone = len(chain) - _CAUSES - 1
    kept = [*chain[:_CAUSES], *chain[_CAUSES:][-1:]]
    parts = []
    for cause, sentence in reversed(kept):
        parts += [_block(cause, scribe, _OWN_FRAMES, _MEMBERS), sentence]
    if gone > 0:
        parts.insert(2, f"[… {gone:,} causes not stored …]")
    return both_ends("\n\n".join(filter(None, parts)), LIMIT)


def _causes(exc: BaseException) -> Iterator[tuple[BaseException, str]]:
    """What led to `exc`, the nearest first, each with the sentence that says how."""
    seen = {id(exc)}
    while True:
        cause, sentence = base_value(BaseException, "__cause__", exc), _CAUSED
        if cause is None and not base_value(BaseException, "__suppress_context__", exc):
            cause, sentence = base_value(BaseException, "__context__", exc), _DURING
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        exc = cause
        yield exc, sentence


def _block(
    exc: BaseException, scribe: Scribe, ends: tuple[int, int], members: tuple[int, ...]
) -> str:
    """One exception: its frames, its class and message, its notes, its members."""
    frames = _frames(base_value(BaseException, "__traceback__", exc), scribe, ends)
    parts = []
    if frames:
        text = "\n".join(["Traceback (most recent call last):", *frames])
        parts.append(both_ends(scribe.safe(text), _FRAMES_LIMIT))
    message = scribe.message(exc, _MESSAGE_LIMIT)
    parts.append(f"{name_of(type(exc))}: {message}" if message else name_of(type(exc)))
    notes = scribe.notes(exc)
    parts += [scribe.stored(note, _NOTE_LIMIT) for note in notes[:_NOTES]]
    parts += _omitted(len(notes) - _NOTES, "notes")
    return "\n".join([*parts, *_members(exc, scribe, members)])


def _members(exc: BaseException, scribe: Scribe, kept: tuple[int, ...]) -> list[str]:
    if not kept or not issubclass(type(exc), BaseExceptionGroup):
        return []
    inner = base_value(BaseExceptionGroup, "exceptions", exc)
    blocks = [_block(one, scribe, _MEMBER_FRAMES, kept[1:]) for one in inner[: kept[0]]]
    return [*(indent(text, "  | ") for text in blocks), *_omitted(len(inner) - kept[0], "members")]


def _frames(traceback: TracebackType | None, scribe: Scribe, ends: tuple[int, int]) -> list[str]:
    first, last = ends
    steps = []
    while traceback:
        steps.append(traceback)
        traceback = traceback.tb_next
    gone = len(steps) - first - last
    if gone <= 0:
        return [_frame(step, scribe) for step in steps]
    return [
        *(_frame(step, scribe) for step in steps[:first]),
        *(f"  {line}" for line in _omitted(gone, "frames")),
        *(_frame(step, scribe) for step in steps[-last:]),
    ]


def _frame(step: TracebackType, scribe: Scribe) -> str:
    code = step.tb_frame.f_code
    where = f'  File "{code.co_filename[-_NAME:]}", line {step.tb_lineno}'
    line = scribe.source(code.co_filename, step.tb_lineno, _LINE)
    return f"{where}, in {code.co_name[:_NAME]}" + (f"\n    {line}" if line else "")


def _omitted(count: int, what: str) -> list[str]:
    return [f"[… {count:,} {what} not stored …]"] if count > 0 else []
