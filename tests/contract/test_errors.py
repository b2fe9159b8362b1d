"""Whatever a job raises, what is stored is readable, bounded, without secrets, and in time."""

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import pytest

from runcontract.contract.errors import RunError, as_json, describe, fingerprint
from tests.contract.hostile import HOSTILE, Sleeps, caught, chain, long_name

IN_TIME = 2.5
"""Seconds. An idle machine takes 0.6 s for the worst."""


def error(message: str = "m", kind: str = "ValueError", attempt: int = 1) -> RunError:
    return RunError(type=kind, message=message, traceback="t", attempt=attempt)


def storable(document: dict[str, Any]) -> str:
    """The document as Postgres would get it; fails where Postgres or strict JSON would."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    assert "\\u0000" not in text
    text.encode()
    return text


@pytest.mark.parametrize("case", HOSTILE)
def test_an_exception_that_fights_back_is_described_in_time(case: str) -> None:
    exc = HOSTILE[case]()
    started = time.monotonic()
    told = describe(exc, attempt=2)
    assert time.monotonic() - started < IN_TIME
    stored = storable(as_json(told, previous=None, steps=None))
    assert len(stored.encode()) < 40_000
    assert len(told.message.encode()) <= 8 * 1024
    assert len(told.traceback.encode()) <= 24 * 1024
    assert told.attempt == 2
    name = type.__dict__["__qualname__"].__get__(type(exc))
    assert name[:200] in told.type
    assert told.type in told.traceback
    assert "SECRET" not in stored


@pytest.mark.parametrize(
    ("case", "kind", "message"),
    [
        ("sys.exit(0)", "SystemExit", "0"),
        ("sys.exit()", "SystemExit", ""),
        ("str raises", "tests.contract.hostile.Raises", "<no message: str() raised RuntimeError>"),
        ("str exits", "tests.contract.hostile.Exits", "<no message: str() raised SystemExit>"),
        (
            "str is None",
            "tests.contract.hostile.SaysNothing",
            "<no message: str() raised TypeError>",
        ),
        ("str sleeps", "tests.contract.hostile.Sleeps", "<no message: str() took too long>"),
        ("str is odd", "tests.contract.hostile.SaysOdd", "odd text"),
        ("no module", "?.Homeless", "home"),
        ("odd module", "?.Odd", "odd"),
        (
            "odd metaclass",
            "tests.contract.hostile.OddClass",
            "<no message: str() raised SystemExit>",
        ),
        ("NUL", "ValueError", r"a\x00b"),
        ("surrogate", "ValueError", r"a\ud800b"),
        ("file name", "FileNotFoundError", r"[Errno 2] x: '\udcff\udcfe'"),
        ("bytes", "Exception", r"b'\x00\xff'"),
        ("Cyrillic", "Exception", "ж" * 100),
        ("escape codes", "Exception", r"\x1b[2J\x08\x08"),
        ("local class", "tests.contract.hostile.local.<locals>.Local", "local"),
        ("CancelledError", "asyncio.exceptions.CancelledError", ""),
        ("holds itself", "Exception", "[" * 20 + "…" + "]" * 20),
    ],
)
def test_class_and_message_are_kept_as_far_as_they_can_be(
    case: str, kind: str, message: str
) -> None:
    told = describe(HOSTILE[case](), attempt=1)
    assert (told.type, told.message) == (kind, message)


@pytest.mark.parametrize(
    "args",
    [
        *(
            (),
            ("text",),
            (1,),
            (None,),
            (b"x",),
            ("a", 1),
            (1, b"x", "y"),
            ((),),
            ((1,),),
            ((1, 2),),
        ),
        *(([],), ([1, "a"],), ({},), ({"a": [1], 2: {}},), (set(),), ({1},), (frozenset({1}),)),
        *((bytearray(b"x"),), (ValueError("x"),), (1.5, None), ({"a": ("b",)}, [[1], [2]])),
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", [Exception, KeyError, ValueError])
def test_ordinary_arguments_read_as_python_shows_them(
    kind: type[Exception], args: tuple[Any, ...]
) -> None:
    assert describe(kind(*args), attempt=1).message == str(kind(*args))


def test_a_long_message_keeps_its_beginning_and_says_what_is_gone() -> None:
    told = describe(ValueError("first " + "x" * 10_000_000), attempt=1)
    kept, said = told.message.split("… [")
    assert kept.startswith("first xxx")
    assert said == f"{10_000_006 - len(kept):,} more characters not stored]"


@pytest.mark.parametrize("shift", range(4))
def test_a_long_message_is_cut_on_a_character(shift: int) -> None:
    message = describe(ValueError("a" * shift + "😀" * 100_000), attempt=1).message
    assert message.split("…")[0].strip("a😀") == ""


@pytest.mark.parametrize("place", range(8_000, 8_300, 7))
def test_no_part_of_a_secret_survives_a_cut(place: int) -> None:
    text = "x" * place + " postgres://user:SECRETSECRETSECRET@host " + "y" * 1000
    assert "SECRET" not in describe(ValueError(text), attempt=1).message


def test_no_part_of_a_secret_survives_the_cut_before_masking() -> None:
    secrets = " password=" + "S" * 1000
    text = secrets * 129 + " u://user:" + "SECRET" * 500 + "@host"
    told = describe(ValueError(text), attempt=1)
    assert "SS" not in told.message + told.traceback
    assert "SECRET" not in told.message + told.traceback


def test_no_part_of_a_secret_that_fills_the_message_survives() -> None:
    text = f"{'x' * 4000}postgres://user:{'SECRET' * 1500}@host/{'y' * 100_000}"
    told = describe(ValueError(text), attempt=1)
    assert "SECRET" not in told.message + told.traceback


def test_an_exception_is_asked_for_its_text_once() -> None:
    asked = []

    class Counting(Exception):
        def __str__(self) -> str:
            asked.append(1)
            return "text"

    assert "Counting: text" in describe(Counting(), attempt=1).traceback
    assert len(asked) == 1


def test_of_huge_arguments_the_beginning_is_shown() -> None:
    assert describe(HOSTILE["50 MB of list"](), attempt=1).message.startswith("([1, 1, 1, ")
    assert describe(HOSTILE["50 MB of bytes"](), attempt=1).message.startswith(r"b'\x00\x00")


def test_a_long_class_name_is_cut_and_says_so() -> None:
    told = describe(long_name(), attempt=1)
    assert told.type.startswith("tests.contract.hostile.NNN")
    assert told.type.endswith("more characters not stored]")
    assert len(told.type.encode()) <= 300


def test_a_class_name_stays_on_its_line() -> None:
    told = describe(type("A", (Exception,), {"__qualname__": "A\nB\x00\ud800"})(), attempt=1)
    assert told.type == r"tests.contract.test_errors.A\nB\x00\ud800"


def test_no_secret_is_stored() -> None:
    """H37: URL, driver, locals, arguments, cause."""

    def call(token: str) -> None:
        password, headers = "SECRET3", {"Authorization": "Bearer SECRET4"}
        try:
            raise OSError(
                f"cannot connect to postgresql://u:SECRET2@h/db {len(password + str(headers))}"
            )
        except OSError as problem:
            raise RuntimeError(
                f"401 for url https://h/x?api_key=SECRET1&token={token}"
            ) from problem

    exc = caught(call, "SECRET5")
    exc.add_note("sent with token='SECRET6'")
    told = describe(exc, attempt=1)
    stored = storable(as_json(told, previous=None, steps=[{"name": "GET /?token=SECRET7"}]))
    assert "SECRET" not in stored
    assert told.message == "401 for url https://h/x?api_key=***&token=***"
    assert "cannot connect to postgresql://u:***@h/db" in told.traceback
    assert "sent with token='***'" in told.traceback


def test_the_hook_is_applied_after_the_masking_to_every_text() -> None:
    seen: list[str] = []

    def redact(text: str) -> str:
        seen.append(text)
        return text.replace("Ann", "<name>\x00")

    exc = chain(1, lambda number: "Ann, password=SECRET")
    exc.add_note("Ann")
    told = describe(exc, attempt=1, redact=redact)
    assert told.message == r"<name>\x00, password=***"
    assert "Ann" not in told.traceback
    assert not any("SECRET" in text for text in seen)


def raising(text: str) -> str:
    raise SystemExit(text)


def sleeping(text: str) -> str:
    threading.Event().wait(30)
    return text


@pytest.mark.parametrize(
    ("redact", "said"),
    [
        (raising, "<not stored: REDACT raised SystemExit>"),
        (lambda text: None, "<not stored: REDACT raised TypeError>"),
        (sleeping, "<not stored: REDACT took too long>"),
    ],
)
def test_a_hook_that_fails_leaks_nothing(redact: Callable[[str], Any], said: str) -> None:
    started = time.monotonic()
    told = describe(chain(2, lambda number: "Ann"), attempt=1, redact=redact)
    assert time.monotonic() - started < IN_TIME
    assert told.type == "ValueError"
    assert told.message == said
    assert said in told.traceback
    assert "Ann" not in told.traceback


def test_a_part_that_takes_too_long_by_itself_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def render(*_: Any) -> str:
        raise MemoryError

    monkeypatch.setattr("runcontract.contract.errors.render", render)
    told = describe(ValueError("x"), attempt=1)
    assert (told.type, told.message) == ("ValueError", "x")
    assert told.traceback == "<not stored: MemoryError>"


def test_in_another_thread_an_exception_is_described_too() -> None:
    told: list[RunError] = []
    thread = threading.Thread(target=lambda: told.append(describe(ValueError("x"), attempt=1)))
    thread.start()
    thread.join()
    assert str(told[0]) == "ValueError: x"


def test_an_error_reads_as_class_and_message() -> None:
    assert str(error("gone", "KeyError")) == "KeyError: gone"
    assert str(error("", "KeyError")) == "KeyError"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("row 5 of 17", "row 1234 of 9"),
        ("at 0x7f00deadbeef", "at 0x7f00cafebabe"),
        ("id 6a2f41a3-c54c-4b1e-9f0a-0123456789ab", "id 00000000-c54c-fce8-32d2-ba9876543210"),
        ("user 'ann' is gone", "user 'bob' is gone"),
        ('user "ann" is gone', 'user "it is bob" is gone'),
        ("since 2026-03-01T12:00:00+00:00", "since 2025-12-31T23:59:59.999+02:00"),
        ("10.0.0.1:5432 refused", "192.168.100.200:6432 refused"),
        ("hash deadbeefcafe is gone", "hash abcdefabcdef is gone"),
        ("lost 1, 2, 3", "lost 4"),
        ("a  b\n c", "a b c"),
        (f"{'x' * 9_000} 1", f"{'x' * 9_000} 2"),
    ],
)
def test_errors_that_differ_in_what_varies_have_one_fingerprint(one: str, other: str) -> None:
    first = fingerprint(describe(ValueError(one), attempt=1))
    assert first == fingerprint(describe(ValueError(other), attempt=4))
    assert len(first) == 12
    assert set(first) <= set("0123456789abcdef")


def test_errors_of_another_class_or_another_message_have_another_fingerprint() -> None:
    prints = {
        fingerprint(error(message, kind))
        for kind in ("ValueError", "KeyError")
        for message in ("user is gone", "user isn't here", "facade is gone", "user can't be", "")
    }
    assert len(prints) == 10


@pytest.mark.parametrize("unit", ["a", "'", "1", "1,", "a-", "f", " ", '"', "#", "# "])
def test_a_fingerprint_takes_no_time(unit: str) -> None:
    started = time.process_time()
    fingerprint(error(unit * (8192 // len(unit))))
    assert time.process_time() - started < 0.5


def test_a_fingerprint_of_what_no_encoding_takes_is_one_all_the_same() -> None:
    assert len(fingerprint(error("a\ud800b"))) == 12


def test_the_document_holds_the_error_and_its_steps() -> None:
    steps = [{"name": "fetch", "seconds": 0.5, "counts": {"bytes": 10}}]
    told = RunError("ValueError", "m", "t", 3, "exhausted")
    assert as_json(told, previous=None, steps=steps) == {
        "type": "ValueError",
        "message": "m",
        "traceback": "t",
        "attempt": 3,
        "failure": "exhausted",
        "steps": steps,
        "history": [],
    }


def test_an_error_made_by_hand_is_cleaned_and_cut_too() -> None:
    told = RunError("a\x00" * 500, "b\ud800" * 9_000, "c\x1b" * 20_000, 1)
    document = as_json(told, previous=None, steps=None)
    assert len(storable(document).encode()) < 60_000
    assert [len(document[key].encode()) for key in ("type", "message", "traceback")] <= [
        300,
        8192,
        24576,
    ]


def test_earlier_attempts_are_kept_newest_first_and_bounded() -> None:
    document: dict[str, Any] | None = None
    for attempt in range(1, 15):
        document = as_json(
            error(f"try {attempt} " + "x" * 5000, attempt=attempt), previous=document, steps=None
        )
        document["at"] = f"2026-03-01T12:00:{attempt:02}Z"
    assert document is not None
    assert [entry["attempt"] for entry in document["history"]] == list(range(13, 3, -1))
    first = document["history"][0]
    assert set(first) == {"type", "message", "attempt", "at"}
    assert first["at"] == "2026-03-01T12:00:13Z"
    assert first["message"].startswith("try 13 xxx")
    assert len(first["message"].encode()) <= 1024


@pytest.mark.parametrize(
    "previous",
    [
        None,
        {},
        [],
        "text",
        5,
        {"type": None},
        {"message": "m"},
        {"type": 5, "history": [None, 1, "x", {}]},
    ],
    ids=repr,
)
def test_a_malformed_earlier_document_is_left_out(previous: Any) -> None:
    assert as_json(error(), previous=previous, steps=None)["history"] == []


def test_what_is_readable_of_a_malformed_earlier_document_is_kept() -> None:
    previous = {
        "type": "A\x00",
        "message": 5,
        "attempt": "2",
        "at": float("nan"),
        "history": [{"type": "B"}, 3],
    }
    assert as_json(error(), previous=previous, steps=None)["history"] == [
        {"type": r"A\x00", "message": "", "attempt": None, "at": None},
        {"type": "B", "message": "", "attempt": None, "at": None},
    ]
    assert as_json(error(), previous={"type": "A", "history": {}}, steps=None)["history"] == [
        {"type": "A", "message": "", "attempt": None, "at": None}
    ]


class Colour(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 1


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        *((None, None), (True, True), (5, 5), (Level.LOW, 1), (0.5, 0.5), ("text", "text")),
        *((float("nan"), None), (float("inf"), None), (-float("inf"), None)),
        *((10**5000, "<int>"), (-(2**63), "<int>"), (2**63 - 1, 2**63 - 1)),
        *(("a\x00\ud800", r"a\x00\ud800"), ("token=SECRET", "token=***")),
        (timedelta(seconds=90), 90.0),
        (datetime(2026, 3, 1, tzinfo=UTC), "2026-03-01T00:00:00+00:00"),
        (date(2026, 3, 1), "2026-03-01"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        ((1, [2, {3}]), [1, [2, [3]]]),
        ({1: {None: {True: "x"}}}, {"1": {"None": {"True": "x"}}}),
        (Colour.RED, "<tests.contract.test_errors.Colour>"),
        (b"x", "<bytes>"),
        (list(range(1000)), list(range(50))),
        (dict.fromkeys(range(1000)), dict.fromkeys(map(str, range(50)))),
        ([[[[[1]]]]], [[["<list>"]]]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_in_the_steps_is_stored_as_json_knows_it(value: Any, stored: Any) -> None:
    document = as_json(error(), previous=None, steps=[{"value": value}])
    storable(document)
    assert document["steps"] == [{"value": stored}]


def test_the_last_steps_are_kept_while_they_fit() -> None:
    many = [{"name": f"step {number}"} for number in range(1000)]
    document = as_json(error(), previous=None, steps=many)
    assert document["steps"] == many[-200:]
    assert document["steps_cut"] == 800


def test_big_steps_give_way_to_the_latest() -> None:
    big = [{"name": f"step {number}", "text": "x" * 500} for number in range(200)]
    document = as_json(error(), previous=None, steps=big)
    assert document["steps"] == big[-len(document["steps"]) :]
    assert 0 < len(document["steps"]) < 50
    assert document["steps_cut"] == 200 - len(document["steps"])
    assert len(storable(document)) < 40_000


@pytest.mark.parametrize("steps", [5, [5], "steps", [None], [{"x": Sleeps()}]], ids="abcde")
def test_steps_that_are_none_do_not_prevent_the_document(steps: Any) -> None:
    storable(as_json(error(), previous=None, steps=steps))
