"""What smtplib raises is judged by its class, and says the server's words."""

import smtplib

import pytest
from django.core.mail import EmailMessage
from pytest_django import Settings

from demo_project import mailer
from demo_project.notifications.mail import send, words
from demo_project.smtp import Act, Character, MailServer
from runcontract.contract.classify import classify
from runcontract.contract.errors import describe

ADA = "ada@example.org"


def raised(server: MailServer, act: Act) -> Exception:
    """By sending one mail to a server that does this."""
    server.characters[ADA] = Character(then=act)
    with pytest.raises(smtplib.SMTPException) as caught:
        send(EmailMessage("Now", "It is born.", to=[ADA]))
    return caught.value


@pytest.mark.parametrize(
    ("act", "transient", "said"),
    [
        (Act.GREYLISTED, True, "451 4.7.1 Greylisted, please try again later"),
        (Act.CLOSING, True, "421 4.3.2 Service shutting down, closing the channel"),
        (Act.BUSY, True, "452 4.3.1 Insufficient system storage"),
        (Act.DROPPED, True, "Connection unexpectedly closed"),
        (Act.SLOW, True, "timed out"),
        (
            Act.REFUSED,
            False,
            "550 5.1.1 The account that you tried to reach does not exist. "
            "Adresse unbekannt, bitte prüfen Sie die Schreibweise",
        ),
        (Act.REJECTED, False, "554 5.7.1 Message rejected as spam"),
    ],
)
def test_each_act_is_judged_and_told(
    mail_server: MailServer, act: Act, transient: bool, said: str
) -> None:
    error = raised(mail_server, act)
    assert classify(error).transient is transient
    assert said in describe(error, attempt=1).message


@pytest.fixture
def nobody(settings: Settings) -> None:
    for name, value in mailer.smtp("127.0.0.1", 9, 1).items():
        setattr(settings, name, value)


def test_nobody_at_the_door_is_transient(nobody: None) -> None:
    with pytest.raises(ConnectionRefusedError) as caught:
        send(EmailMessage("Now", "It is born.", to=[ADA]))
    assert classify(caught.value).transient


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (smtplib.SMTPDataError(554, b"5.7.1 No\n5.7.1 never\n5.7.1"), "554 5.7.1 No never"),
        (smtplib.SMTPDataError(554, "a text"), "554 a text"),
        (smtplib.SMTPDataError(554, b""), "554"),
        (
            smtplib.SMTPSenderRefused(550, b"no \xff here", "me"),
            "550 no \N{REPLACEMENT CHARACTER} here",
        ),
        (smtplib.SMTPServerDisconnected("gone"), "gone"),
    ],
)
def test_words_are_one_line_whatever_the_server_sent(
    error: smtplib.SMTPException, said: str
) -> None:
    assert words(error) == said
