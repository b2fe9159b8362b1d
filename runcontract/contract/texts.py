"""Texts that can be stored and shown: cleaned of what Postgres or a reader's terminal refuses, cut.

Limits are bytes of UTF-8, and every cut falls on a character and says how much is gone.
"""

from __future__ import annotations

import re

_UNSTORABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"  # NUL, controls (ESC among them), lone surrogates
    "\u202a-\u202e\u2066-\u2069]"  # marks that make a text read as another one
)
_MARK = 64
"""Bytes kept free for the sentence that says what was cut."""


def clean(text: str) -> str:
    r"""`text` with what jsonb, UTF-8 or a terminal refuses made visible: \x00, \x1b, \ud800.

    Newlines (a CRLF counts as one) and tabs stay.
    """
    return _UNSTORABLE.sub(_visible, text.replace("\r\n", "\n"))


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def beginning(text: str, limit: int, lost: int = 0) -> str:
    """The first `limit` bytes of a clean text, of which `lost` characters were cut before."""
    raw = text.encode()
    if len(raw) <= limit and not lost:
        return text
    kept = raw[: limit - _MARK].decode(errors="ignore")
    return f"{kept}… [{len(text) - len(kept) + lost:,} more characters not stored]"


def both_ends(text: str, limit: int) -> str:
    """`limit` bytes of a clean text: a third from its beginning, the rest from its end."""
    raw = text.encode()
    if len(raw) <= limit:
        return text
    first = (limit - _MARK) // 3
    head = raw[:first].decode(errors="ignore")
    tail = raw[first + _MARK - limit :].decode(errors="ignore")
    gone = len(text) - len(head) - len(tail)
    return f"{head}\n[… {gone:,} characters not stored …]\n{tail}"


def whole_words(text: str, bound: int) -> str:
    """At most `bound` characters from the beginning, ending before a torn word.

    For the cut before masking: half a secret would not be known for one. Leave it far more than
    what is kept in the end, for a word longer than half of `bound` is torn all the same.
    """
    if len(text) <= bound:
        return text
    space = max(text.rfind(blank, bound // 2, bound) for blank in " \n\t")
    return text[: space if space > 0 else bound // 2]
