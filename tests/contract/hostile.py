"""Exceptions that fight back when they are printed, copied or looked at (cases H12, H13, H34)."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from typing import Any, NoReturn

MEGABYTE = 1_000_000


class Raises(Exception):
    def __str__(self) -> str:
        raise RuntimeError("SECRET")

    __repr__ = __str__


class Exits(Exception):
    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


class Interrupts(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class SaysNothing(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]


class Recurses(Exception):
    def __str__(self) -> str:
        return f"{self}"


class Sleeps(Exception):
    def __str__(self) -> str:
        threading.Event().wait(30)
        return "slept"


class Insists(Exception):
    """Goes on when it is stopped, twice."""

    def __str__(self) -> str:
        for _ in range(2):
            try:
                threading.Event().wait(30)
            except BaseException:
                continue
        return "insisted"


class TwoArguments(Exception):
    """pickle makes none of it again."""

    def __init__(self, first: object, second: object) -> None:
        super().__init__("needs two")


class Unequal(Exception):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __bool__(self) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


class Closed(Exception):
    """Raises on every attribute."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit


class Disguised(Exception):
    @property
    def __class__(self) -> Any:
        raise KeyboardInterrupt

    @__class__.setter
    def __class__(self, other: Any) -> None: ...


class OddText(str):
    """A str that is none of our str's business."""

    def __len__(self) -> int:
        raise RuntimeError

    __getitem__ = __iter__ = __format__ = __str__ = __len__  # type: ignore[assignment]


class SaysOdd(Exception):
    def __str__(self) -> str:
        return OddText("odd text")


class Unreadable:
    def __repr__(self) -> str:
        raise RuntimeError


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        raise SystemExit


class OddClass(Exception, metaclass=Meta):
    pass


def closed_socket() -> BaseException:
    with socket.socket() as left:
        return Exception(left)


def evil_base() -> BaseException:
    return type("Evil", (BaseException,), {})("base")


def long_name() -> BaseException:
    return type("N" * 10_000, (Exception,), {})("named")


def no_module() -> BaseException:
    error: BaseException = eval("type('Homeless', (Exception,), {})('home')", {})
    return error


def odd_module() -> BaseException:
    return type("Odd", (Exception,), {"__module__": Unreadable()})("odd")


def local() -> BaseException:
    class Local(Exception):
        pass

    return Local("local")


def caused_by_itself() -> BaseException:
    error = ValueError("self")
    error.__cause__ = error
    return error


def circle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__context__ = second, first
    return first


def chain(length: int, text: Callable[[int], str] = "link {}".format) -> BaseException:
    error: BaseException = ValueError("root")
    for number in range(length):
        outer = ValueError(text(number))
        outer.__cause__ = error
        error = outer
    return error


def sleeping_chain() -> BaseException:
    error: BaseException = Sleeps()
    for _ in range(20):
        outer = Sleeps()
        outer.__cause__ = error
        error = outer
    return error


def sleeping_group() -> BaseException:
    return ExceptionGroup("group", [Sleeps() for _ in range(1000)])


def group() -> BaseException:
    return ExceptionGroup("group", [ValueError(f"member {number}") for number in range(1000)])


def deep_group() -> BaseException:
    error: Exception = ValueError("leaf")
    for _ in range(3000):
        error = ExceptionGroup("nest", [error])
    return error


def noted(*notes: Any) -> BaseException:
    error = ValueError("noted")
    error.__notes__ = list(notes)
    return error


def odd_notes() -> BaseException:
    error = ValueError("noted")
    error.__notes__ = 5  # type: ignore[assignment]
    return error


def self_holding() -> BaseException:
    inner: list[Any] = []
    inner.append(inner)
    return Exception(inner)


def recursion() -> BaseException:
    def again() -> NoReturn:
        again()

    return caught(again)


def deep(frames: int, error: BaseException) -> BaseException:
    def down(left: int) -> NoReturn:
        if left:
            down(left - 1)
        raise error

    return caught(down, frames)


def caught(call: Callable[..., Any], *args: Any) -> BaseException:
    try:
        call(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


HOSTILE: dict[str, Callable[[], BaseException]] = {
    "sys.exit()": SystemExit,
    "sys.exit(0)": lambda: SystemExit(0),
    "sys.exit(text)": lambda: SystemExit("text"),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "BaseException": evil_base,
    "MemoryError": MemoryError,
    "StopIteration": StopIteration,
    "RecursionError": recursion,
    "str raises": Raises,
    "str exits": Exits,
    "str interrupts": Interrupts,
    "str is None": SaysNothing,
    "str recurses": Recurses,
    "str sleeps": Sleeps,
    "str insists": Insists,
    "str is odd": SaysOdd,
    "two arguments": lambda: TwoArguments(1, 2),
    "lock": lambda: Exception(threading.Lock()),
    "closed socket": closed_socket,
    "unreadable argument": lambda: Exception(Unreadable()),
    "unreadable arguments": lambda: Exception(1, Unreadable()),
    "local class": local,
    "caused by itself": caused_by_itself,
    "circle": circle,
    "3,000 causes": lambda: chain(3000),
    "1,000 members": group,
    "3,000 groups": deep_group,
    "1,000 sleeping members": sleeping_group,
    "20 sleeping causes": sleeping_chain,
    "100 notes": lambda: noted(*(f"note {number}" for number in range(100))),
    "odd notes": lambda: noted(1, None, OddText("x"), Unreadable(), "x\x00" * MEGABYTE),
    "no notes": odd_notes,
    "10,000-character name": long_name,
    "no module": no_module,
    "odd module": odd_module,
    "odd metaclass": lambda: OddClass("meta"),
    "unequal": lambda: Unequal("x"),
    "closed": Closed,
    "disguised": lambda: Disguised("x"),
    "NUL": lambda: ValueError("a\x00b"),
    "surrogate": lambda: ValueError("a\ud800b"),
    "file name": lambda: OSError(2, "x", os.fsdecode(b"\xff\xfe")),
    "bytes": lambda: Exception(b"\x00\xff"),
    "Cyrillic": lambda: Exception("ж" * 100),
    "escape codes": lambda: Exception("\x1b[2J\x08\x08"),
    "10 MB": lambda: ValueError("x" * 10 * MEGABYTE),
    "10 MB of emoji in 400 frames": lambda: deep(400, ValueError("😀" * 10 * MEGABYTE)),
    "10 MB of URLs": lambda: ValueError("://u:a" * 2 * MEGABYTE),
    "10 MB 20 times": lambda: chain(20, lambda number: "x" * 10 * MEGABYTE),
    "50 MB of bytes": lambda: Exception(b"\0" * 50 * MEGABYTE),
    "50 MB of list": lambda: Exception([1] * 6 * MEGABYTE, {"a": bytearray(50 * MEGABYTE)}),
    "50 MB of KeyError": lambda: KeyError("k" * 50 * MEGABYTE),
    "holds itself": self_holding,
}
