"""H03, H11, H35: what enqueue refuses is one ValueError, with no row, no message, no harm."""

import uuid
from datetime import timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any

import pytest
from django.db import models, transaction
from django.db.models import Value
from django.db.models.functions import Lower, Now
from django.test.utils import isolate_apps
from django.utils.translation import gettext_lazy

from runcontract.exceptions import InvalidRun
from runcontract.lifecycle import transitions
from runcontract.lifecycle.table import Table
from runcontract.lifecycle.validate import check_storable, differing
from runcontract.models import RunContract
from tests.lab.models import MailRun, Order, SyncRun
from tests.support.runs import again, claim, messages, queued, sql

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_server")]

KEYS = [
    "invoice:42",
    "2024/05/01",
    "a b",
    "user@x.example",
    "\u00e9",
    "e\u0301",
    "0",
    "-1",
    " ",
    "..",
    "%s",
    "%(x)s",
    "{}",
    "*",
    "a~2",
    "\U0001f600" * 255,
    "\n\t\x1b\x08",
    "z" * 255,
]
NOT_KEYS: list[Any] = [
    "",
    "z" * 256,
    "z" * 9_000,
    "ab" * 5_000,
    "a\x00b",
    "a\ud800b",
    7,
    0,
    False,
    uuid.UUID(int=7),
    b"a",
    ["a"],
    gettext_lazy("lazy"),
]


class Text(StrEnum):
    KEY = "enum:key"


class OldText(str, Enum):
    KEY = "old:key"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["job_id", "lock_key"])
def test_a_key_works_from_end_to_end(name: str, redis_server) -> None:
    for key in KEYS:
        run = queued(MailRun, **{name: key})
        assert getattr(again(run), name) == key
        assert not MailRun.objects.enqueue(**{name: key})
        assert messages(redis_server) == [f"lab-mailrun-{run.pk}-0"]
        transitions.succeed(claim(run), {})
        assert MailRun.objects.enqueue(**{name: key}).created is (name == "lock_key")
        redis_server.flushall()


@pytest.mark.parametrize("key", NOT_KEYS, ids=lambda key: repr(key)[:12])
@pytest.mark.parametrize("name", ["job_id", "lock_key"])
def test_anything_else_is_one_value_error(name: str, key: Any, redis_server) -> None:
    with transaction.atomic():
        with pytest.raises(ValueError, match=name):
            MailRun.objects.enqueue(**{name: key})
        Order.objects.create()
    assert Order.objects.exists()
    assert not MailRun.objects.exists()
    assert messages(redis_server) == []


def test_no_lock_key_is_no_lock() -> None:
    """H35."""
    assert MailRun.objects.enqueue(lock_key=None)
    assert MailRun.objects.enqueue(lock_key=None)


@pytest.mark.parametrize("key", [Text.KEY, OldText.KEY])
def test_the_member_of_an_enum_of_texts_is_its_text(key: Any) -> None:
    run = queued(MailRun, job_id=key)
    assert again(run).job_id == key.value
    assert MailRun.objects.enqueue(job_id=key.value).run == run


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lane": "nowhere"}, "no lane 'nowhere' in RQ_QUEUES; it has default, bulk"),
        ({"lane": ""}, "no lane ''"),
        ({"lane": ["default"]}, "no lane"),
        ({"if_locked": "wait"}, "if_locked"),
        ({"state": "running"}, "no field 'state'"),
        ({"attempts": 3}, "no field 'attempts'"),
        ({"lock": "K"}, "no field 'lock'"),
        ({"pk": 7}, "no field 'pk'"),
        ({"note": "a\x00b"}, "note holds a NUL"),
        ({"note": "a\ud800b"}, "note holds a lone surrogate"),
        ({"note": None}, "note needs a value"),
        ({"progress": "many"}, "progress"),
        ({"progress": 2**31}, "progress must be from"),
        ({"progress": -(2**31) - 1}, "progress must be from"),
        ({"progress": float("inf")}, "progress"),
        ({"args": {"a": "b\x00"}}, "args holds a NUL"),
        ({"args": {"a\ud800": 1}}, "args holds a lone surrogate"),
        ({"args": {"a": float("nan")}}, "args cannot be stored"),
        ({"args": {"a": object()}}, "args cannot be stored"),
        ({"args": {"a": Decimal("1.10")}}, "args cannot be stored"),
        ({"args": {"a": b"x"}}, "args cannot be stored"),
        ({"args": {"a": {1, 2}}}, "args cannot be stored"),
        ({"args": {"a": (1, 2)}}, "args would come back"),
        ({"args": {1: "a"}}, "args would come back"),
        ({"args": None}, "args needs a value"),
    ],
    ids=repr,
)
def test_what_cannot_be_stored_is_refused_by_name(given: Any, said: str, redis_server) -> None:
    with transaction.atomic():
        with pytest.raises(InvalidRun, match=said):
            MailRun.objects.enqueue(job_id="a", **given)
        Order.objects.create()
    assert not MailRun.objects.exists()
    assert messages(redis_server) == []


def test_a_circular_or_bottomless_argument_is_refused() -> None:
    circular: list[Any] = []
    circular.append(circular)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (circular, deep):
        with pytest.raises(InvalidRun, match="args cannot be stored"):
            MailRun.objects.enqueue(args={"a": value})


def test_a_deep_argument_is_stored_or_refused_but_never_breaks_the_transaction() -> None:
    deep: list[Any] = []
    for _ in range(6_000):
        deep = [deep]
    with transaction.atomic():
        try:
            MailRun.objects.enqueue(args={"a": deep})
        except InvalidRun:
            pass
        Order.objects.create()
    assert Order.objects.exists()


@pytest.mark.parametrize(
    "args",
    [
        {"text": "a\\u0000b", "quote": '"', "nested": [{"": None}], "big": 2**70, "float": 1.5},
        {"true": True, "none": None, "empty": {}},
    ],
)
def test_what_json_can_hold_arrives_as_it_was_sent(args: Any) -> None:
    assert again(queued(MailRun, args=args)).args == args


def test_something_to_refer_to_must_be_saved_first() -> None:
    with pytest.raises(InvalidRun, match="order is not saved yet"):
        SyncRun.objects.enqueue(order=Order())
    assert not SyncRun.objects.exists()
    assert SyncRun.objects.enqueue(order=None)
    with pytest.raises(InvalidRun, match="cannot be made"):
        SyncRun.objects.enqueue(order="seven")


def test_a_lazy_text_is_stored_as_its_text() -> None:
    assert again(queued(MailRun, note=gettext_lazy("Yes"))).note == "Yes"
    with pytest.raises(InvalidRun, match="NUL"):
        MailRun.objects.enqueue(note=gettext_lazy("a\x00"))


def test_an_expression_is_the_databases_to_judge() -> None:
    run = queued(MailRun, note=Lower(Value("ABC")))
    assert run.note == "abc"
    assert MailRun.objects.enqueue(job_id=run.job_id, note=Now()).differing == ()


@isolate_apps("tests.lab")
def test_the_columns_of_every_kind_are_checked_for_what_they_can_hold() -> None:
    class Wide(RunContract):
        key = models.UUIDField(null=True)
        short = models.CharField(max_length=3, default="")
        choice = models.CharField(max_length=3, default="", choices=[("a", "a")])
        long = models.TextField(max_length=3, default="")
        at = models.DateTimeField(null=True)
        made = models.DateTimeField(auto_now_add=True)
        day = models.DateField()
        file = models.FileField(max_length=5)
        amount = models.DecimalField(max_digits=5, decimal_places=2, default=0)
        small = models.PositiveSmallIntegerField(default=0)
        pause = models.DurationField(default=timedelta)
        required = models.ForeignKey(Order, on_delete=models.CASCADE)

        class Meta(RunContract.Meta):
            app_label = "lab"

    table, fine = Table(Wide), {"day": "2024-05-01", "required_id": 1}

    def check(**given: Any) -> None:
        check_storable(table, Wide(**{**fine, **given}))

    check(key=str(uuid.uuid4()), long="longer", at="2024-05-01T12:00Z", amount="1.50", file="a.txt")
    for given, said in [
        ({"key": "no-uuid"}, "key"),
        ({"short": "long"}, "short has 4 characters; 3 are allowed"),
        ({"choice": "long"}, "choice has 4"),
        ({"at": "yesterday"}, "at"),
        ({"day": None}, "day needs a value"),
        ({"day": "2024-13-01"}, "day"),
        ({"file": "longer.txt"}, "file has 10"),
        ({"amount": "many"}, "amount"),
        ({"amount": Decimal("NaN")}, "amount"),
        ({"small": -1}, "small must be from 0 to 32767"),
        ({"required_id": None}, "required needs a value"),
        ({"required_id": 2**63}, "required must be from"),
        ({"pause": "long"}, "pause"),
    ]:
        with pytest.raises(InvalidRun) as caught:
            check(**given)  # type: ignore[arg-type]
        assert str(caught.value).startswith(said)


def test_differing_compares_what_would_be_stored() -> None:
    table = Table(MailRun)
    run = queued(MailRun, args={"a": [1]}, progress=3)
    assert differing(table, ["args", "progress"], MailRun(args={"a": [1]}, progress="3"), run) == ()
    assert differing(table, ["args"], MailRun(args=None), run) == ("args",)


def test_nothing_was_left_by_all_of_these() -> None:
    assert sql("SELECT count(*) FROM lab_mailrun") == [(0,)]
