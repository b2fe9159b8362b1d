"""An origin and a mail server, both well-behaved until a test says otherwise."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from demo_project import mailer, smtp
from demo_project.origin import Act, Character, Origin
from tests.support.processes import Command


def metadata(name: str, version: str = "1.0") -> dict[str, object]:
    """What an origin tells of a distribution."""
    return {"name": name, "version": version, "summary": f"{name}!", "requires_dist": ["b>=1"]}


@contextmanager
def serving(origin: Origin) -> Iterator[Origin]:
    """The origin answers, in a thread of its own."""
    thread = threading.Thread(target=origin.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield origin
    finally:
        origin.shutdown()
        thread.join()
        origin.server_close()


@pytest.fixture
def origin(settings: Settings) -> Iterator[Origin]:
    origin = Origin(("127.0.0.1", 0), 1, {name: metadata(name) for name in ("a", "b", "c")})
    origin.characters = dict.fromkeys(origin.catalogue, Character())
    settings.ORIGIN_URL = f"http://127.0.0.1:{origin.server_port}"
    with serving(origin):
        yield origin


def behave(origin: Origin, name: str, *first: Act, then: Act = Act.GOOD) -> None:
    """From now on this distribution behaves like this."""
    origin.characters[name] = Character(first, then)


@contextmanager
def taking_mail(server: smtp.MailServer) -> Iterator[int]:
    """The server takes mail, in a thread of its own; its port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    listening = asyncio.run_coroutine_threadsafe(server.listen(0), loop).result(10)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(hang_up(listening), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        server.close()


async def hang_up(listening: asyncio.Server) -> None:
    """End the conversations too, so that no socket is left."""
    listening.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "mail.journal"


@pytest.fixture
def mail_server(
    journal: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[smtp.MailServer]:
    """Mail goes to it, from this process and from those that the test starts."""
    server = smtp.MailServer(1, journal)
    server.characters = defaultdict(smtp.Character)
    with taking_mail(server) as port:
        monkeypatch.setenv("RUNCONTRACT_TEST_MAIL_PORT", str(port))
        for name, value in mailer.smtp("127.0.0.1", port, 1).items():
            setattr(settings, name, value)
        yield server


@pytest.fixture
def start_mailing(
    redis_server: Any, mail_server: smtp.MailServer, start_worker: Callable[..., Command]
) -> Callable[..., Command]:
    """A worker that sends to the mail server, and waits out its pauses itself."""
    quick = {"BACKOFF_BASE": 0.05, "BACKOFF_CAP": 0.2}
    return lambda *more, **options: start_worker("default", *more, **{"settings": quick, **options})
