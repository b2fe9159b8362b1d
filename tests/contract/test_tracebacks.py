"""A stored traceback reads like Python's, keeps both ends, and says what it leaves out."""

import linecache
import traceback
from typing import Any

import pytest

from runcontract.contract.errors import describe
from runcontract.contract.scribe import Scribe
from tests.contract.hostile import caught, chain, circle, deep, group, noted


def stored(exc: BaseException) -> str:
    return describe(exc, attempt=1).traceback


def without_carets(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip(" ^~"))


def fail() -> None:
    raise ValueError("it failed")


def fail_from() -> None:
    try:
        fail()
    except ValueError as problem:
        raise KeyError("outer") from problem


def fail_during() -> None:
    try:
        fail()
    except ValueError:
        raise KeyError("outer")  # noqa: B904 -- the very thing


def fail_alone() -> None:
    try:
        fail()
    except ValueError:
        raise KeyError("outer") from None


@pytest.mark.parametrize("call", [fail, fail_from, fail_during, fail_alone])
def test_it_reads_like_pythons(call: Any) -> None:
    exc = caught(call)
    assert without_carets(stored(exc)) == without_carets("".join(traceback.format_exception(exc)))


def test_an_exception_that_was_never_raised_has_its_class_and_message() -> None:
    assert stored(ValueError("x")) == "ValueError: x"
    assert stored(ValueError()) == "ValueError"


def test_the_first_and_the_last_frames_are_kept() -> None:
    text = stored(deep(400, ValueError("x" * 10_000_000)))
    lines = text.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert text.count('  File "') == 25
    assert "  [… 377 frames not stored …]" in lines
    assert lines.index("  [… 377 frames not stored …]") == 11
    assert lines[-2] == "    raise error"
    assert lines[-1].startswith("ValueError: xxx")


def test_the_nearest_causes_and_the_root_are_kept() -> None:
    kept = [line for line in stored(chain(3000)).splitlines() if line and "exception" not in line]
    assert kept == [
        "ValueError: root",
        "[… 2,996 causes not stored …]",
        *(f"ValueError: link {number}" for number in (2996, 2997, 2998, 2999)),
    ]


def test_five_causes_are_all_kept() -> None:
    assert "not stored" not in stored(chain(4))
    assert "[… 1 causes not stored …]" in stored(chain(5))


def test_a_circle_of_causes_is_walked_once() -> None:
    text = stored(circle())
    assert text.count("ValueError: first") == 1
    assert text.count("ValueError: second") == 1


def test_a_few_notes_are_kept() -> None:
    lines = stored(noted(*(f"note {number}" for number in range(100)))).splitlines()
    assert lines == [
        "ValueError: noted",
        *(f"note {n}" for n in range(5)),
        "[… 95 notes not stored …]",
    ]


def test_notes_that_are_no_texts_are_left_out() -> None:
    assert stored(noted(1, None, "x")) == "ValueError: noted\nx"


def test_a_few_members_of_a_group_are_kept() -> None:
    lines = stored(group()).splitlines()
    assert lines == [
        "ExceptionGroup: group (1000 sub-exceptions)",
        *(f"  | ValueError: member {number}" for number in range(5)),
        "[… 995 members not stored …]",
    ]


def test_members_come_with_their_last_frames_and_their_own_members() -> None:
    inner = ExceptionGroup("inner", [ValueError(str(number)) for number in range(3)])
    members: list[Exception] = [caught(fail), inner]  # type: ignore[list-item]
    lines = stored(ExceptionGroup("outer", members)).splitlines()
    assert lines[1] == "  | Traceback (most recent call last):"
    assert '  |     raise ValueError("it failed")' in lines
    assert lines[-4:] == [
        "  | ExceptionGroup: inner (3 sub-exceptions)",
        "  |   | ValueError: 0",
        "  |   | ValueError: 1",
        "  | [… 1 members not stored …]",
    ]


def test_a_group_deeper_than_is_kept_ends_in_its_own_line() -> None:
    exc: Exception = ValueError("leaf")
    for number in range(4):
        exc = ExceptionGroup(f"level {number}", [exc])
    assert stored(exc).splitlines() == [
        "ExceptionGroup: level 3 (1 sub-exception)",
        "  | ExceptionGroup: level 2 (1 sub-exception)",
        "  |   | ExceptionGroup: level 1 (1 sub-exception)",
    ]


def compiled(shown: str, filename: str, name: str = "job") -> Any:
    """A function that divides by zero at its depth n, in a file whose line linecache has."""
    source = f"def {name}(n=0):\n    return {name}(n - 1) if n else 1 / 0\n"
    lines = [f"def {name}(n=0):\n", f"    {shown}\n"]
    linecache.cache[filename] = (len(source), None, lines, filename)
    space: dict[str, Any] = {}
    exec(compile(source, "job.py", "exec"), space)
    job = space[name]
    job.__code__ = job.__code__.replace(co_filename=filename)
    return job


def test_secrets_and_codes_in_a_source_line_are_masked() -> None:
    text = stored(caught(compiled("dsn = 'postgres://u:SECRET@h \x0c\ud800'", "/x/job.py")))
    assert r"    dsn = 'postgres://u:***@h \x0c\ud800'" in text.splitlines()


@pytest.mark.parametrize("place", range(940, 1010, 3))
def test_a_long_source_line_is_cut_after_it_was_masked(place: int) -> None:
    line = f"{'x' * place} = 'postgres://u:SECRETSECRET@h {'y' * 10_000_000}'"
    text = stored(caught(compiled(line, "/x/long.py")))
    assert "SECRET" not in text
    assert len(text) < 5_000


def test_a_secret_that_fills_a_source_line_is_masked_before_the_cut() -> None:
    job = compiled(f"{'x' * 400}='postgres://u:{'SECRET' * 300}@h'", "/x/full.py")
    assert "SECRET" not in stored(caught(job))


def test_long_names_keep_the_end_of_the_path() -> None:
    job = compiled("1 / 0", f"/{'d' * 10_000}/job.py", "n" * 10_000)
    where = stored(caught(job)).splitlines()[3]
    assert where.startswith('  File "ddd')
    assert '/job.py", line 2, in nnn' in where
    assert len(where) < 700


@pytest.mark.parametrize("filename", ["/no/such/file.py", "<string>", "/"])
def test_a_frame_without_source_is_kept(filename: str) -> None:
    job = compiled("1 / 0", filename)
    del linecache.cache[filename]
    assert "line 2, in job\nZeroDivisionError" in stored(caught(job))


@pytest.mark.parametrize("filename", ["a\x00b", "\ud800", "", "/" * 100_000])
def test_a_file_that_cannot_even_be_named_has_no_source(filename: str) -> None:
    assert Scribe(None).source(filename, 2, 100) == ""


def test_many_long_lines_are_cut_in_the_middle() -> None:
    job = compiled("x" * 990, "/x/deep.py")
    text = stored(caught(job, 30))
    assert "characters not stored …]" in text
    assert text.startswith("Traceback")
    assert text.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert len(text.encode()) <= 12 * 1024 + 100


def test_a_traceback_that_is_too_long_keeps_both_ends() -> None:
    job = compiled("x" * 990, "/x/deep.py")
    error = caught(job, 30)
    error.__context__ = OSError("root")
    for _ in range(3):
        outer = caught(job, 30)
        outer.__cause__ = error
        error = outer
    text = stored(error)
    assert len(text.encode()) <= 24 * 1024
    assert text.startswith("OSError: root\n\nDuring handling")
    assert text.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert text.count("The above exception was the direct cause") < 3
