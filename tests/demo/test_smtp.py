"""The mail server misbehaves by its seed, and its journal knows what it accepted."""

import os
import re
import signal
import smtplib
import subprocess
import sys
from pathlib import Path

import pytest

from demo_project.smtp import (
    DECK,
    Act,
    Character,
    Entry,
    MailServer,
    accepted,
    character,
    entries,
    readers,
)
from demo_project.state import CHECKOUT

from .conftest import taking_mail

ADA = "ada@example.org"
ONCE = Character(first=(Act.GREYLISTED,))


def send(port: int, recipient: str = ADA, message_id: str = "<1@x>", timeout: float = 1) -> None:
    with smtplib.SMTP("127.0.0.1", port, "here", timeout) as client:
        client.sendmail("me@example.org", [recipient], f"Message-ID: {message_id}\r\n\r\nhello\r\n")


def port_of(process: "subprocess.Popen[str]") -> int:
    assert process.stdout
    found = re.search(r"on port (\d+)", process.stdout.readline())
    assert found
    return int(found[1])


def server_of(journal: Path, *first: Act, then: Act = Act.GOOD) -> MailServer:
    server = MailServer(1, journal)
    server.characters[ADA] = Character(first, then)
    return server


def test_same_seed_has_the_same_readers_and_each_character_is_met(journal: Path) -> None:
    server, again = MailServer(3, journal), MailServer(3, journal)
    assert {server.characters[each] for each in readers(3)} == set(DECK)
    for reader in readers(3):
        for _ in range(3):
            one, two = server.decide(reader), again.decide(reader)
            assert (one[0], one[1].random()) == (two[0], two[1].random())
    assert readers(3) != readers(4)
    server.close()
    again.close()


def test_transient_misbehaviour_ends_after_a_few_tries() -> None:
    assert all(len(character.first) <= 2 for character in DECK)
    assert {character.then for character in DECK} == {Act.GOOD, Act.REFUSED, Act.REJECTED}


def test_no_dealt_character_accepts_and_then_keeps_silent() -> None:
    assert not any(Act.LATE in (*each.first, each.then) for each in DECK)


@pytest.mark.parametrize(
    ("act", "error", "code"),
    [
        (Act.GREYLISTED, smtplib.SMTPRecipientsRefused, 451),
        (Act.CLOSING, smtplib.SMTPRecipientsRefused, 421),
        (Act.REFUSED, smtplib.SMTPRecipientsRefused, 550),
        (Act.BUSY, smtplib.SMTPDataError, 452),
        (Act.REJECTED, smtplib.SMTPDataError, 554),
    ],
)
def test_refusal_is_what_smtplib_says_it_is(
    journal: Path, act: Act, error: type[smtplib.SMTPException], code: int
) -> None:
    with taking_mail(server_of(journal, act)) as port:
        with pytest.raises(error) as caught:
            send(port)
        assert str(code) in str(caught.value)
        send(port)
    assert [each.act for each in entries(journal)] == [act, Act.GOOD]


def test_connection_is_reset_before_or_in_the_middle_of_the_mail(journal: Path) -> None:
    server = server_of(journal, *[Act.DROPPED] * 8)
    with taking_mail(server) as port:
        for _ in range(8):
            with pytest.raises(smtplib.SMTPServerDisconnected):
                send(port)
        send(port)
    assert {each.message_id for each in entries(journal)[:8]} == {"", "<1@x>"}
    assert accepted(journal) == {"<1@x>": 1}


def test_slow_one_is_slower_than_its_client_waits(journal: Path) -> None:
    silent = pytest.raises(smtplib.SMTPServerDisconnected, match="timed out")
    with taking_mail(server_of(journal, Act.SLOW)) as port, silent:
        send(port, timeout=0.2)
    assert not accepted(journal)


def test_journal_tells_what_was_accepted_and_how_often(journal: Path) -> None:
    server = server_of(journal, Act.GREYLISTED)
    with taking_mail(server) as port:
        with pytest.raises(smtplib.SMTPRecipientsRefused):
            send(port)
        send(port)
        send(port)
        server.characters["bob@example.org"] = Character()
        send(port, "bob@example.org", "<2@x>")
        assert server.accepted == {"<1@x>": 2, "<2@x>": 1}
    assert accepted(journal) == server.accepted
    assert entries(journal)[0] == Entry(Act.GREYLISTED, ADA, "")


def test_half_a_line_counts_as_not_written(journal: Path) -> None:
    journal.write_text(f"GOOD\t{ADA}\t<1@x>\nGOOD\t{ADA}\t<2")
    assert accepted(journal) == {"<1@x>": 1}


def test_killed_server_goes_on_from_its_journal(journal: Path) -> None:
    command = [sys.executable, "-m", "demo_project.smtp", "--port", "0", "--seed", "2"]
    command += ["--journal", str(journal)]
    greylisted = next(each for each in readers(2) if character(each, 2) == ONCE)
    for end in (signal.SIGKILL, signal.SIGTERM):
        with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
            port = port_of(process)
            if end == signal.SIGKILL:
                with pytest.raises(smtplib.SMTPRecipientsRefused):
                    send(port, greylisted)
            else:
                send(port, greylisted)
            os.kill(process.pid, end)
        assert process.returncode == (0 if end == signal.SIGTERM else -end)
    assert accepted(journal) == {"<1@x>": 1}
