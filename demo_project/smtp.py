"""A mail server that misbehaves as real ones do, by a fixed seed.

What happens to a mail is settled by the seed, its recipient and the number of the try to reach
that recipient, so a run can be repeated. Transient misbehaviour ends after a few tries; who is
refused stays so. It keeps a journal, one line a try, and a mail's line is written before the mail
is accepted: so the journal survives the server's own kill, and a new server goes on from it.

    python -m demo_project.smtp --port 8025 --seed 1 --journal mail.journal
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import struct
import sys
from collections import Counter
from dataclasses import dataclass
from email import message_from_bytes
from enum import StrEnum
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple
from weakref import WeakKeyDictionary

from aiosmtpd.smtp import SMTP, Envelope, Session


class Act(StrEnum):
    """What the server does with one try."""

    GOOD = "accepted"
    GREYLISTED = "451, come again"
    BUSY = "452, after the whole message"
    CLOSING = "421"
    DROPPED = "connection reset"
    SLOW = "slow"
    REFUSED = "550"
    REJECTED = "554, after the whole message"
    LATE = "accepted, and said late"


ACCEPTING = {Act.GOOD, Act.LATE}
AFTER_DATA = {*ACCEPTING, Act.BUSY, Act.REJECTED}
"""What shows only when the whole message is there; a reset may come before or after it."""


@dataclass(frozen=True)
class Character:
    """How the tries to reach a recipient go: `first`, one after the other, then `then` for ever."""

    first: tuple[Act, ...] = ()
    then: Act = Act.GOOD


DECK = (
    Character(first=(Act.GREYLISTED,)),
    Character(first=(Act.GREYLISTED, Act.CLOSING)),
    Character(first=(Act.BUSY,)),
    Character(first=(Act.DROPPED,)),
    Character(first=(Act.DROPPED, Act.GREYLISTED)),
    Character(first=(Act.SLOW,)),
    Character(then=Act.REFUSED),
    Character(then=Act.REJECTED),
    *[Character()] * 6,
)
"""Act.LATE is not in it: it makes a mail arrive twice, and its sender is innocent."""

SLOW = 5.0
"""Seconds; longer than the demo's mail waits for an answer."""

LATE = 20.0
"""Seconds between the acceptance and its being said: time enough to kill who waits for it."""

ANSWERS = {
    Act.GOOD: b"250 2.0.0 Ok: queued",
    Act.GREYLISTED: b"451 4.7.1 Greylisted, please try again later",
    Act.BUSY: b"452 4.3.1 Insufficient system storage",
    Act.CLOSING: b"421 4.3.2 Service shutting down, closing the channel",
    Act.SLOW: b"451 4.4.2 Timeout",
    Act.REFUSED: b"550-5.1.1 The account that you tried to reach does not exist.\r\n"
    b"550 5.1.1 Adresse unbekannt, bitte pr\xc3\xbcfen Sie die Schreibweise",
    Act.REJECTED: b"554 5.7.1 Message rejected as spam",
    Act.LATE: b"250 2.0.0 Ok: queued",
}


def character(recipient: str, seed: int) -> Character:
    """The character that this recipient has by the seed."""
    return Random(f"{seed}:{recipient}").choice(DECK)


class Dealt(dict[str, Character]):
    """Characters by recipient, the seed's where nothing else was set."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def __missing__(self, recipient: str) -> Character:
        return character(recipient, self.seed)


def readers(seed: int) -> list[str]:
    """One address for each character of the deck, so that a story of few mails meets them all."""
    found: dict[Character, str] = {}
    for number in count(1):
        address = f"reader-{number}@example.org"
        found.setdefault(character(address, seed), address)
        if len(found) == len(set(DECK)):
            break
    return list(found.values())


class Entry(NamedTuple):
    """A line of the journal. A mail that was not accepted may have no message-id yet."""

    act: Act
    recipient: str
    message_id: str


def entries(journal: Path) -> list[Entry]:
    """What a server has written, oldest first; nothing if there is no journal yet."""
    if not journal.exists():
        return []
    whole = journal.read_text().rpartition("\n")[0]
    lines = (line.split("\t") for line in whole.splitlines())
    return [Entry(Act[name], recipient, message_id) for name, recipient, message_id in lines]


def accepted(journal: Path) -> Counter[str]:
    """How often each message-id was accepted."""
    return Counter(each.message_id for each in entries(journal) if each.act in ACCEPTING)


class MailServer:
    """What a server knows and decides; `listen` opens its door."""

    def __init__(self, seed: int, journal: Path) -> None:
        self.seed = seed
        self.characters: dict[str, Character] = Dealt(seed)
        self.accepted = accepted(journal)
        self._tries = Counter(each.recipient for each in entries(journal))
        self._after_data: WeakKeyDictionary[Envelope, Act] = WeakKeyDictionary()
        self._journal = journal.open("a")

    async def listen(self, port: int) -> asyncio.Server:
        """Take connections on this port of 127.0.0.1; 0 takes a free one."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            lambda: SMTP(self, hostname="mx.example.org", loop=loop), "127.0.0.1", port
        )

    def close(self) -> None:
        """Nothing is written any more."""
        self._journal.close()

    def decide(self, recipient: str) -> tuple[Act, Random]:
        """What happens to the next try to reach this recipient, and dice for the details."""
        known = self.characters[recipient]
        number = self._tries[recipient]
        self._tries[recipient] += 1
        act = known.first[number] if number < len(known.first) else known.then
        return act, Random(f"{self.seed}:{recipient}:{number}")

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> bytes:
        """aiosmtpd's hook for RCPT TO: some tries end here."""
        act, dice = self.decide(address)
        if act in AFTER_DATA or (act is Act.DROPPED and dice.random() < 0.5):
            envelope.rcpt_tos.append(address)
            self._after_data[envelope] = act
            return b"250 2.1.5 Ok"
        return await self._end(server, Entry(act, address, ""))

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> bytes:
        """aiosmtpd's hook for the end of DATA: here a mail is accepted or not."""
        assert isinstance(envelope.content, bytes)
        message_id = str(message_from_bytes(envelope.content)["Message-ID"]).strip()
        act = self._after_data.pop(envelope)
        return await self._end(server, Entry(act, envelope.rcpt_tos[0], message_id))

    async def _end(self, server: SMTP, entry: Entry) -> bytes:
        """Write the try down, then answer; a mail that is accepted must not be forgotten."""
        act, recipient, message_id = entry
        self._journal.write(f"{act.name}\t{recipient}\t{message_id}\n")
        self._journal.flush()
        if act in ACCEPTING:
            self.accepted[message_id] += 1
        if act is Act.DROPPED:
            await _reset(server)
        elif act in (Act.SLOW, Act.LATE):
            await asyncio.sleep(SLOW if act is Act.SLOW else LATE)
        return ANSWERS[act]


async def _reset(server: SMTP) -> None:
    """Drop the connection with a RST; this very task is cancelled by it."""
    assert isinstance(server.transport, asyncio.Transport)
    linger = struct.pack("ii", 1, 0)
    server.transport.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, linger
    )
    server.transport.abort()
    await asyncio.Event().wait()


async def serve(server: MailServer, port: int) -> None:
    """Say where it listens, and serve until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    listening = await server.listen(port)
    sys.stdout.write(f"mail server on port {listening.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await stopped.wait()
    listening.close()


def main(argv: list[str] | None = None) -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, default=8025, help="on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same misbehaviour")
    parser.add_argument("--journal", type=Path, default=Path("mail.journal"))
    options = parser.parse_args(argv)
    server = MailServer(options.seed, options.journal)
    asyncio.run(serve(server, options.port))
    server.close()


if __name__ == "__main__":
    main()
