"""A delivery from its announcement to the mailbox, by a real worker and over real SMTP."""

import os
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.db import transaction
from django.db.models.functions import Now

from demo_project.harvester.models import DeadLetter, HarvestRun, Source
from demo_project.notifications.announce import announce_failed_agent, announce_pass, notify
from demo_project.notifications.audit import unaccounted
from demo_project.notifications.models import Delivery
from demo_project.smtp import Act, Character, MailServer, accepted, entries
from runcontract.contract.errors import RunError
from runcontract.contract.states import Failure
from runcontract.lifecycle import transitions
from runcontract.lifecycle.table import table_of
from tests.support.lab import ended, in_state
from tests.support.processes import Command
from tests.support.race import race, values
from tests.support.wait import eventually

pytestmark = pytest.mark.django_db(transaction=True)

ADA = "ada@example.org"
WORDS = (
    "550 5.1.1 The account that you tried to reach does not exist. "
    "Adresse unbekannt, bitte prüfen Sie die Schreibweise"
)
Mailing = Callable[..., Command]


def announce(event: str = "birth", subject: str = "Now", recipient: str = ADA) -> Delivery:
    answer = notify(event, recipient, subject, "It is born.\nAnd well.")
    delivery: Delivery = answer.run
    return delivery


def problems(journal: Path) -> list[str]:
    first = Delivery.objects.order_by("pk").first()
    return list(unaccounted(accepted(journal), first.queued_at)) if first else []


def test_delivery_arrives_as_it_was_written(
    mail_server: MailServer, start_mailing: Mailing
) -> None:
    delivery = announce(subject="Größe \n and more")
    assert delivery.delivered_at is None
    worker = start_mailing()
    assert ended(delivery).state == "succeeded", delivery.last_error
    assert delivery.delivered_at == delivery.finished_at
    assert mail_server.accepted == {delivery.message_id: 1}
    assert [step["name"] for step in delivery.stats["steps"]] == ["write", "send"]
    assert delivery.stats["steps"][0]["counts"]["bytes"] > 200
    assert delivery.subject == "Größe and more"
    worker.stop()


@pytest.mark.parametrize("act", [Act.GREYLISTED, Act.BUSY, Act.CLOSING, Act.DROPPED, Act.SLOW])
def test_transient_misbehaviour_is_delivered_on_a_later_attempt(
    mail_server: MailServer, start_mailing: Mailing, journal: Path, act: Act
) -> None:
    mail_server.characters[ADA] = Character(first=(act, act))
    delivery = announce()
    worker = start_mailing()
    assert ended(delivery).state == "succeeded", delivery.last_error
    assert delivery.attempts == 3
    assert delivery.not_delivered == ""
    assert [each.act for each in entries(journal)] == [act, act, Act.GOOD]
    assert mail_server.accepted == {delivery.message_id: 1}
    assert not problems(journal)
    worker.stop()


@pytest.mark.parametrize(
    ("act", "words"), [(Act.REFUSED, WORDS), (Act.REJECTED, "554 5.7.1 Message rejected as spam")]
)
def test_refused_for_ever_is_not_delivered_in_the_servers_words(
    mail_server: MailServer, start_mailing: Mailing, act: Act, words: str
) -> None:
    mail_server.characters[ADA] = Character(then=act)
    delivery = announce()
    worker = start_mailing()
    assert (ended(delivery).state, delivery.failure) == ("failed", "permanent")
    assert (delivery.attempts, delivery.not_delivered) == (1, words)
    assert delivery.delivered_at is None
    assert not mail_server.accepted
    worker.stop()


def test_patience_ends_with_the_last_words(mail_server: MailServer, start_mailing: Mailing) -> None:
    mail_server.characters[ADA] = Character(then=Act.GREYLISTED)
    delivery = announce()
    worker = start_mailing()
    assert (ended(delivery).state, delivery.failure) == ("failed", "exhausted")
    assert delivery.attempts == 6
    assert delivery.not_delivered == "451 4.7.1 Greylisted, please try again later"
    worker.stop()


def test_greylisted_one_leaves_the_worker_free_and_is_swept_up_later(
    mail_server: MailServer, start_mailing: Mailing, start_scheduler: Mailing
) -> None:
    mail_server.characters[ADA] = Character(first=(Act.GREYLISTED,))
    delivery = announce()
    start_scheduler()
    worker = start_mailing(settings={"SHORT_PAUSE": 0})
    assert ended(delivery).state == "succeeded", delivery.last_error
    assert (delivery.attempts, delivery.stats["deferred"]) == (2, 1)
    worker.stop()


def test_nobody_at_the_door_is_tried_again(start_worker: Mailing, redis_server: Any) -> None:
    delivery = announce()
    worker = start_worker("default", settings={"BACKOFF_BASE": 60, "BACKOFF_FLOOR": 60})
    in_state(delivery, "queued")
    eventually(lambda: in_state(delivery, "queued").next_retry_at)
    assert "ConnectionRefusedError" in str(delivery.last_error)
    worker.stop()


@pytest.mark.parametrize("recipient", ["ada@example.org\nBcc: eve@example.org", "nobody", ""])
def test_address_that_cannot_be_is_not_delivered(
    mail_server: MailServer, start_mailing: Mailing, recipient: str
) -> None:
    delivery = announce(recipient=recipient)
    worker = start_mailing()
    assert (ended(delivery).state, delivery.failure) == ("failed", "permanent")
    assert delivery.not_delivered == f"This cannot be mailed: {recipient!r} is no address"
    assert not mail_server.accepted
    worker.stop()


def test_double_click_mails_once(mail_server: MailServer, start_mailing: Mailing) -> None:
    answers = values(race(*[partial(notify, "click", ADA, "Clicked", "twice")] * 2))
    assert sorted(bool(answer) for answer in answers) == [False, True]
    assert answers[0].run.pk == answers[1].run.pk
    worker = start_mailing()
    assert ended(answers[0].run).state == "succeeded"
    again = notify("click", ADA, "Clicked", "once more")
    assert (again.reason, again.differing) == ("duplicate", ("body",))
    assert mail_server.accepted == {answers[0].run.message_id: 1}
    worker.stop()


def test_what_is_rolled_back_is_not_mailed(mail_server: MailServer, start_mailing: Mailing) -> None:
    with transaction.atomic():
        announce("never")
        transaction.set_rollback(True)
    assert not Delivery.objects.exists()
    kept = announce("kept")
    worker = start_mailing()
    ended(kept)
    assert mail_server.accepted == {kept.message_id: 1}
    worker.stop()


def test_resent_delivery_is_the_same_row_with_the_same_message_id(
    mail_server: MailServer, start_mailing: Mailing
) -> None:
    mail_server.characters[ADA] = Character(then=Act.REFUSED)
    delivery = announce()
    worker = start_mailing()
    assert ended(delivery).not_delivered
    del mail_server.characters[ADA]
    assert delivery.redo()
    assert ended(delivery).state == "succeeded"
    assert (delivery.attempts, delivery.not_delivered) == (1, "")
    assert mail_server.accepted == {delivery.message_id: 1}
    assert delivery.redo().reason == "not failed"
    worker.stop()


@pytest.mark.chaos
def test_worker_killed_between_yes_and_settle_delivers_twice_under_one_message_id(
    mail_server: MailServer, start_mailing: Mailing, start_scheduler: Mailing, journal: Path
) -> None:
    mail_server.characters[ADA] = Character(first=(Act.LATE,))
    delivery = announce()
    start_scheduler()
    worker = start_mailing(env={"RUNCONTRACT_TEST_MAIL_PATIENCE": "30"})
    eventually(lambda: mail_server.accepted)
    os.kill(worker.children()[0], signal.SIGKILL)
    assert ended(delivery).state == "succeeded", delivery.last_error
    assert (delivery.attempts, delivery.stats["lost"]) == (2, 1)
    assert accepted(journal) == {delivery.message_id: 2}
    assert not problems(journal)
    worker.stop()


def test_delivery_that_arrived_twice_for_no_reason_is_told(journal: Path) -> None:
    delivery = announce()
    Delivery.objects.update(state="succeeded", finished_at=Now(), held_until=Now())
    other = announce("another")
    journal.write_text(f"GOOD\t{ADA}\t{delivery.message_id}\n" * 2 + f"GOOD\t{ADA}\t<9@x>\n")
    assert problems(journal) == [
        "notify:birth was accepted 2 times, 0 interruptions",
        "<9@x> was accepted, and no delivery has it",
    ]
    journal.write_text(f"GOOD\t{ADA}\t{other.message_id}\n")
    assert problems(journal) == [
        "notify:another was accepted 1 times, 0 interruptions",
        "notify:birth is delivered, and the server never saw it",
    ]


def test_digest_goes_to_each_reader_once() -> None:
    figures = {"entities": 12, "conflicts": 0}
    assert [bool(each) for each in announce_pass("pass:7", "Pass 7", figures)] == [True, True]
    assert not any(announce_pass("pass:7", "Pass 7", figures))
    assert sorted(Delivery.objects.values_list("recipient", "kind", "body")) == [
        ("one@example.org", "digest", "entities: 12\nconflicts: 0"),
        ("two@example.org", "digest", "entities: 12\nconflicts: 0"),
    ]


def test_long_question_is_cut_in_the_subject_and_whole_in_the_body() -> None:
    question = "why? " * 100
    told = announce_failed_agent("agent:1", ADA, question, "the budget is spent").run
    assert len(told.subject) == 200
    assert question.strip() in told.body
    assert "the budget is spent" in told.body


def test_dead_letter_and_its_notice_stand_or_fall_together() -> None:
    source = Source.objects.create(name="a", version="1.0")
    queued = HarvestRun.objects.enqueue(job_id="harvest:a:1", source=source, generation=1).run
    run = transitions.claim(table_of(HarvestRun), queued.pk, 0, "a worker")
    error = RunError("PermanentError", "/dist/a: 404", "", 1, "permanent")
    with transaction.atomic():
        transitions.fail(run, Failure.PERMANENT, error, {})
        assert Delivery.objects.exists()
        transaction.set_rollback(True)
    assert not Delivery.objects.exists()
    transitions.fail(run, Failure.PERMANENT, error, {})
    letter, notice = DeadLetter.objects.get(), Delivery.objects.get()
    assert (notice.recipient, notice.body) == ("a@maintainers.example", letter.cause)
    assert notice.event == "dead-letter:harvest:a:1"


def test_mail_says_who_sent_it_and_that_no_answer_is_read() -> None:
    announce().mail().send()
    (sent,) = mail.outbox
    headers = sent.message()
    assert re.fullmatch(r"<[0-9a-f]{32}@notifications\.example>", headers["Message-ID"])
    assert headers["Auto-Submitted"] == "auto-generated"
