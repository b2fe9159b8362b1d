"""Secrets in error texts, replaced by `***` before anything is stored, logged or cut.

Masked are: passwords in URLs of any scheme, parameters whose name says that they are secret
(`api_key=…`, `"password": "…"`, `token='…'`, `SECRET_KEY=…`), Authorization headers, bearer
tokens, and the value of the project's own SECRET_KEY. A secret that nothing around it gives
away is not known here: that is what RUNCONTRACT["REDACT"] is for.
"""

from __future__ import annotations

import re

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

MASK = "***"

# Masking takes linear time on any text: a pattern begins at a fixed character or at the start of
# a word, what it repeats is possessive (*+) or bounded, and no stretch is scanned twice.

_URL = re.compile(
    r"""
    (?P<scheme> :\\?/\\?/ )
    (?P<user> [^\s/?#:@"'<>]*+ )
    (?: (?P<colon> : ) (?! \d{1,5} (?: [/?#\s"'] | \Z ) )      # a port is not a password
        (?: [^\s/?#"'<>]*@ | [^\s/"'<>@:]++ / [^\s"'<>@:]*+ @ )   # a raw slash is met, too
      | @ )
    """,
    re.VERBOSE,
)
_TOKEN_LENGTH = 20
"""A user name as long as this is taken for a token (https://ghp_…@github.com)."""
_SECRET_KEY_LENGTH = 12
"""A shorter SECRET_KEY could be a word that messages need."""

_BEARER = re.compile(
    r"\b(?P<scheme>[bB](?i:earer|asic)[ \t]{1,4}+)(?=[\w.~+/-]*[\d=])[\w.~+/=-]{6,}+"
)

_NAMED = re.compile(
    r"""
    (?<! [\w-] ) (?P<name> [\w-]++ )
    (?: \\{0,4}+ ["'] (?: \]? [ \t]{0,8}+ (?: => | [:=] )      # "name": or ['name'] =
                        | (?P<pair> , ) )                      # ('name', 'value')
      | [ \t]{0,8}+ (?: => | [:=] ) | %3D )
    [ \t]{0,8}+
    """.replace("[ ", r"[\ "),
    re.VERBOSE,
)
_SECRET_NAME = re.compile(
    r"""
    (?: password | passwd | passphrase | passcode | pwd | secret | credential | cookie
      | signature | session_?(?: id | key )
      | (?: api | access | private | auth | account | shared | encryption )[_-]?key
      | (?<! [a-z] ) (?: pass | otp )
    ) s?+ (?: [_-]\w{1,40}+ | (?-i:[A-Z])\w{1,40}+ | \d{1,3}+ )?+ \Z
    | token (?: [_-]? (?: secret | value | key | hash | \d{1,3} ) )?+ \Z
    | (?P<query> \A (?: key | sig | code | auth ) \Z )         # only in a query string
    | (?P<header> authorization \Z )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_VALUE = re.compile(
    r"""
    (?! (?: None | null | True | False ) \b )
    (?: (?P<open> [bru]{0,2} (?P<quote> \\{0,4}+ ["'] ) )
        (?P<content> (?: [^"'\\\n]++ | (?! (?P=quote) ) (?: \\. | [^\n] ) )*+ )
        (?P<close> (?P=quote) )?+
      | (?: [^\s&"'<>,;)\]}] | [,;)\]}] (?= [^\s&"'<>,;)\]}] ) )++ )
    """,
    re.VERBOSE,
)
_CREDENTIALS = re.compile(
    r"""
    (?P<open> (?: [bru]{0,2} \\{0,4}+ ["'] )?+ )
    (?P<scheme> (?: bearer | basic | digest | token | api-?key | negotiate ) [\ \t]++ )?+
    (?! \*{3} ) [^\s"'\\<>]++
    (?(scheme) | (?: [\ \t]++ [^\s"'\\<>]++ )?+ )      # of an unknown scheme two words
    """,
    re.VERBOSE | re.IGNORECASE,
)


def mask(text: str) -> str:
    """`text` with its secrets replaced by `***`. Never raises, and takes linear time."""
    for secret in _own_secrets():
        text = text.replace(secret, MASK)
    text = _URL.sub(_without_userinfo, text)
    text = _BEARER.sub(rf"\g<scheme>{MASK}", text)
    pieces, done = [], 0
    for named in _NAMED.finditer(text):
        if named.start() >= done and (masked := _masked_value(text, named)):
            pieces += [text[done : named.end()], masked[0]]
            done = masked[1]
    return "".join([*pieces, text[done:]])


def _own_secrets() -> list[str]:
    try:
        keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    except ImproperlyConfigured:
        return []
    return [key for key in keys if isinstance(key, str) and len(key) >= _SECRET_KEY_LENGTH]


def _without_userinfo(found: re.Match[str]) -> str:
    user = MASK if len(found["user"]) >= _TOKEN_LENGTH else found["user"]
    secret = f":{MASK}" if found["colon"] else ""
    return f"{found['scheme']}{user}{secret}@"


def _masked_value(text: str, named: re.Match[str]) -> tuple[str, int] | None:
    """What stands in for the value after a secret's name, and where that value ends."""
    secret = _SECRET_NAME.search(named["name"][-80:])
    if not secret or (secret["query"] and text[named.start() - 1 : named.start()] not in "?&;"):
        return None
    if secret["header"]:
        found = _CREDENTIALS.match(text, named.end())
        return found and (f"{found['open']}{found['scheme'] or ''}{MASK}", found.end())
    found = _VALUE.match(text, named.end())
    if not found or (named["pair"] and not (found["close"] and text.startswith(")", found.end()))):
        return None
    if found["open"] is None:
        return MASK, found.end()
    return f"{found['open']}{found['content'] and MASK}{found['close'] or ''}", found.end()
