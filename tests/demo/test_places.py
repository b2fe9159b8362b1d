"""One demo a checkout, free ports, and a word for other terminals."""

import os
import socket
from pathlib import Path

import pytest

from demo_project.demo.places import (
    DemoError,
    free_port,
    only_one,
    tell_others,
    wait_for_port,
)


def test_second_demo_of_a_checkout_is_told_about_the_first(tmp_path: Path) -> None:
    with (
        only_one(tmp_path),
        pytest.raises(DemoError, match=f"already runs in this checkout \\(pid {os.getpid()}\\)"),
        only_one(tmp_path),
    ):
        pass
    with only_one(tmp_path):
        pass


def test_taken_port_is_replaced_by_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert free_port(port) not in (0, port)
    assert free_port(port) == port


def test_port_where_nobody_listens_is_an_error_after_a_while() -> None:
    with pytest.raises(DemoError, match="Nothing listens"):
        wait_for_port(free_port(0), patience=0.1)


def test_other_terminals_read_what_is_told(tmp_path: Path) -> None:
    tell_others(tmp_path, {"ORIGIN_URL": "http://127.0.0.1:1"})
    tell_others(tmp_path, {"ORIGIN_URL": "http://127.0.0.1:2"})
    assert (tmp_path / "demo.env").read_text() == "ORIGIN_URL=http://127.0.0.1:2\n"
    assert [path.name for path in tmp_path.iterdir()] == ["demo.env"]
