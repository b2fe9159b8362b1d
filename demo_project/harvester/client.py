"""The origin's two pages, read over HTTP; each way to fail said in runcontract's words."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Self
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

from django.conf import settings

from runcontract import PermanentError, TransientError

PATIENCE = 2.0
"""Seconds that the origin may be silent."""

LARGEST = 4_000_000
"""Bytes; no metadata is that long."""

AGAIN_LATER = {408, 425, 429, 500, 502, 503, 504}

_opener = build_opener(ProxyHandler({}))  # the origin is on this machine, behind no proxy


@dataclass(frozen=True)
class Metadata:
    """One distribution as its origin tells it, checked."""

    name: str
    version: str
    summary: str = ""
    license: str = ""
    requires_python: str = ""
    requires_dist: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, body: bytes, name: str) -> Self:
        """The metadata in this body. Raises PermanentError when it is not what was asked for."""
        try:
            told = json.loads(body)
            if told["name"] != name:
                raise ValueError(f"it is about {told['name']!r}")
            found = cls(**{key: told[key] for key in cls.__dataclass_fields__ if key in told})
            for text in [*vars(found).values(), *found.requires_dist]:
                if isinstance(text, str):
                    _storable(text)
        except (ValueError, TypeError, KeyError) as error:
            raise PermanentError(f"malformed metadata of {name}: {error}") from error
        return found


def fetch_index() -> dict[str, str]:
    """The version of every distribution that the origin lists, by name."""
    listing: dict[str, str] = json.loads(_get("/index"))
    return listing


def fetch_metadata(name: str) -> bytes:
    """What the origin says about one distribution, not yet looked at."""
    return _get(f"/dist/{quote(name)}")


def _get(path: str) -> bytes:
    """The body at this path. Raises TransientError when it is worth asking again."""
    try:
        with _opener.open(settings.ORIGIN_URL + path, timeout=PATIENCE) as response:
            body: bytes = response.read(LARGEST)
    except HTTPError as error:
        error.close()
        said = f"{path}: the origin answered {error.code} {error.reason}"
        if error.code in AGAIN_LATER:
            raise TransientError(said, retry_after=error.headers.get("Retry-After")) from error
        raise PermanentError(said) from error
    except (OSError, HTTPException) as error:
        raise TransientError(f"{path}: {type(error).__name__}: {error}") from error
    return body


def _storable(text: Any) -> None:
    """Raise ValueError for a text that Postgres refuses: a NUL or a lone surrogate."""
    if "\0" in text:
        raise ValueError("a NUL in a text")
    text.encode()
