"""Where the demo keeps its servers' data, logs and secrets."""

from __future__ import annotations

import os
import secrets
import tempfile
from hashlib import sha256
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
LONGEST = 80
"""Characters of a path in which a unix socket still finds room."""


def directory() -> Path:
    """The state directory: STATE_DIR, else `.state` in the checkout, else one in the temp folder.

    The checkout's serves if it is writable, short enough for unix sockets and, for root, open to
    the user `nobody` as whom the servers then run.
    """
    if given := os.environ.get("STATE_DIR"):
        return _made(Path(given).resolve())
    if len(str(CHECKOUT)) < LONGEST and os.access(CHECKOUT, os.W_OK) and _open_to_all(CHECKOUT):
        return _made(CHECKOUT / ".state")
    mark = sha256(str(CHECKOUT).encode()).hexdigest()[:8]
    return _made(Path(tempfile.gettempdir()).resolve() / f"runcontract-{os.geteuid()}-{mark}")


def secret_key(state: Path) -> str:
    """The secret key kept in this directory, made by whoever asks first."""
    kept, mine = state / "secret_key", state / f"secret_key.{os.getpid()}"
    if not kept.exists():
        mine.touch(mode=0o600)
        mine.write_text(secrets.token_urlsafe(50))
        try:
            os.link(mine, kept)
        except FileExistsError:
            pass
        mine.unlink()
    return kept.read_text()


def _made(path: Path) -> Path:
    path.mkdir(mode=0o711, parents=True, exist_ok=True)
    if path.stat().st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user; set STATE_DIR to one of yours.")
    return path


def _open_to_all(path: Path) -> bool:
    return os.geteuid() != 0 or all(each.stat().st_mode & 1 for each in (path, *path.parents))
