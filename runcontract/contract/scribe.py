"""Reads exceptions that fight back and writes texts that may be stored.

Nothing that an exception defines is trusted: its attributes are read from the base classes where
they can be, its own code is called under a time limit, and what it gives is bounded first.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from typing import Any

from .guard import Overdue, Patience
from .masking import mask
from .texts import beginning, clean, whole_words

WHOLE, EACH = 0.6, 0.15
"""Seconds for all foreign code of one error, and for one call."""
_BOUND, _DEPTH = 64_000, 20
"""What is looked at of huge `args`: characters, and levels of nesting."""
_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    dict: ("{", "}"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}
_BOUNDABLE: set[type] = {bytes, bytearray, *_BRACKETS}


class Scribe:
    """Writes the texts of one error."""

    def __init__(self, redact: Callable[[str], str] | None) -> None:
        self._redact = redact
        self._patience = Patience(WHOLE, EACH)
        self._said: dict[int, str] = {}

    def stored(self, text: str, limit: int) -> str:
        """`text` made safe and cut to `limit` bytes."""
        start = whole_words(text, 16 * limit)
        return beginning(self.safe(start), limit, lost=len(text) - len(start))

    def safe(self, text: str) -> str:
        """`text` masked, then given to the consumer's hook, then cleaned."""
        return clean(self._redacted(mask(text)))

    def _redacted(self, text: str) -> str:
        """A hook that fails must not leak: then nothing of the text is stored."""
        hook = self._redact
        if hook is None:
            return text
        return self._patience.ask(
            lambda: _exact(hook(text)),
            lambda error: f"<not stored: REDACT {_misdeed(error)}>",
        )

    def message(self, exc: BaseException, limit: int) -> str:
        """`str(exc)`, storable; a sentence in angle brackets where it has none to give."""
        if id(exc) not in self._said:
            self._said[id(exc)] = self._patience.ask(
                lambda: _exact(_say(exc)), lambda error: f"<no message: str() {_misdeed(error)}>"
            )
        return self.stored(self._said[id(exc)], limit)

    def source(self, filename: str, number: int, bound: int) -> str:
        """A source line, masked, without indentation; empty where there is none to read."""
        line = self._patience.ask(
            lambda: linecache.getline(filename, number).strip(), lambda error: ""
        )
        return mask(whole_words(line, 16 * bound))[:bound]

    def notes(self, exc: BaseException) -> list[str]:
        """The texts that were added to `exc`; anything else in their place is left out."""

        def read() -> list[str]:
            notes = getattr(exc, "__notes__", ())
            notes = notes if isinstance(notes, list | tuple) else ()
            return [_exact(note) for note in notes if isinstance(note, str)]

        return self._patience.ask(read, lambda error: [])


def name_of(cls: type) -> str:
    """The class's qualified name on one line of at most 300 bytes; builtins without module."""
    name = _exact(base_value(type, "__qualname__", cls))
    try:
        module = _exact(base_value(type, "__module__", cls))
    except (AttributeError, TypeError):
        module = "?"
    name = name if module == "builtins" else f"{module}.{name}"
    return beginning(clean(name[:10_000]).replace("\n", r"\n"), 300, lost=len(name[10_000:]))


def base_value(base: type, name: str, thing: Any) -> Any:
    """An attribute as `base` defines it, whatever the class of `thing` makes of that name."""
    return base.__dict__[name].__get__(thing, type(thing))


def _misdeed(error: BaseException) -> str:
    return "took too long" if isinstance(error, Overdue) else f"raised {name_of(type(error))}"


def _exact(text: object) -> str:
    if not issubclass(type(text), str):
        raise TypeError
    return str.__str__(text)


def _say(exc: BaseException) -> Any:
    """`str(exc)`; of huge `args` that the base class would print, only the beginning."""
    args = base_value(BaseException, "args", exc)
    if type(exc).__str__ is BaseException.__str__:
        if len(args) > 1:
            return _brief(args)
        if args and type(args[0]) in _BOUNDABLE:
            return _brief(args[0])
    return str(exc)


def _brief(value: Any) -> str:
    """The beginning of `repr(value)`, without building all of it."""
    pieces, size = [], 0
    for piece in _repr(value, _DEPTH):
        pieces.append(piece)
        size += len(piece) + 1
        if size > _BOUND:
            return "".join([*pieces, "…"])
    return "".join(pieces)


def _repr(value: Any, depth: int) -> Iterator[str]:
    kind = type(value)
    if kind in (str, bytes, bytearray):
        yield repr(value[:_BOUND])
    elif kind not in _BRACKETS or not value:
        yield repr(value)
    elif not depth:
        yield "…"
    else:
        yield _BRACKETS[kind][0]
        for number, item in enumerate(value):
            yield ", " if number else ""
            yield from _repr(item, depth - 1)
            if kind is dict:
                yield ": "
                yield from _repr(value[item], depth - 1)
        yield _BRACKETS[kind][1] if len(value) > 1 or kind is not tuple else ",)"
