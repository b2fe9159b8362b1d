"""Where the demo keeps things."""

import tempfile
from pathlib import Path

import pytest

from demo_project import state


def test_state_dir_of_the_environment_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DIR", str(tmp_path / "mine"))
    assert state.directory() == tmp_path / "mine"
    assert (tmp_path / "mine").is_dir()


def test_checkout_too_deep_for_sockets_gets_a_place_in_the_temp_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * state.LONGEST)
    deep.mkdir()
    monkeypatch.delenv("STATE_DIR", raising=False)
    monkeypatch.setattr(state, "CHECKOUT", deep)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    assert state.directory().parent == tmp_path / "t"


def test_secret_key_is_made_once_and_private(tmp_path: Path) -> None:
    key = state.secret_key(tmp_path)
    assert len(key) >= 50
    assert state.secret_key(tmp_path) == key
    assert (tmp_path / "secret_key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]
