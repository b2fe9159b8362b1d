"""Keep secrets out of stored texts, and out of texts what Postgres refuses.

Every pattern here runs in linear time, for the texts are other people's.
"""

from __future__ import annotations

import re
from collections.abc import Callable

MASK = "***"

_NAMES = (
    r"api[_-]?key|apikey|access[_-]?key|access[_-]?token|auth[_-]?token|refresh[_-]?token|id_token|"
    r"client[_-]?secret|secret[_-]?key|secret|token|password|passwd|pwd|signature|sig|sessionid|"
    r"private[_-]?key|credential|credentials"
)
_URL_PASSWORD = re.compile(r"(?<=://)([^\s:/@'\"]{0,200}):([^\s@/'\"]{1,500})@")
_HEADER = re.compile(
    r"(\b(?:proxy-)?authorization\b['\"]?\s{0,3}[:=]\s{0,3}['\"]?)"
    r"(?:(bearer|basic|token|digest)\s{1,3})?[^\s'\",;]{1,4000}",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(bearer|basic)(\s{1,3})[A-Za-z0-9._~+/=-]{6,4000}", re.IGNORECASE)
_NAMED = re.compile(
    rf"((?:\b|_)(?:{_NAMES})\b['\"]?\s{{0,3}}(?:=|:)\s{{0,3}})"
    r"(?:b?'[^'\n]{0,4000}'|b?\"[^\"\n]{0,4000}\"|[^\s&'\",;)}\]]{1,4000})",
    re.IGNORECASE,
)
_REFUSED = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def mask(text: str) -> str:
    """The text with passwords in URLs, tokens and authorization headers replaced by `***`."""
    text = _URL_PASSWORD.sub(rf"\1:{MASK}@", text)
    text = _HEADER.sub(lambda found: f"{found[1]}{found[2] or ''} {MASK}", text)
    text = _BEARER.sub(rf"\1\2{MASK}", text)
    return _NAMED.sub(rf"\1{MASK}", text)


def clean(text: str) -> str:
    """The text with everything escaped that Postgres or UTF-8 refuses, or that hides what it says.

    NUL, control codes (not line feed and tab), lone surrogates and direction overrides become
    visible escapes such as `\\x00` and `\\ud800`.
    """
    return _REFUSED.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def redacted(text: str, redact: Callable[[str], str] | None) -> str:
    """Masked by us and then by the project's hook.

    A hook that raises must not leak what it was to hide: then nothing of the text is kept but a
    sentence that says so.
    """
    text = mask(text)
    if redact is None:
        return text
    try:
        return str(redact(text))
    except Exception as problem:  # noqa: BLE001 - a hook of the project's
        return f"<not stored: REDACT raised {type(problem).__name__}>"
