"""What travels over the pipes."""

import os
import uuid

import pytest

from runcontract.worker.reports import (
    STOP,
    Hold,
    LineReader,
    Order,
    Phase,
    Report,
    encode_order,
    parse_order,
    tell,
)

HOLDS = [
    Hold("lab.mailrun", 7, 3),
    Hold("lab.mailrun", -7, 3),
    Hold("lab.uuidrun", uuid.uuid4(), 2**62),
]


@pytest.mark.parametrize("hold", [*HOLDS, None])
@pytest.mark.parametrize("timeout", [None, 0.25, 86_400.0])
@pytest.mark.parametrize("phase", Phase)
def test_report_arrives_as_it_was_sent(phase, hold, timeout) -> None:
    report = Report(phase, hold, timeout)
    line = report.encode()
    assert line.endswith(b"\n")
    assert len(line) < 512, "longer than the smallest PIPE_BUF: it may be torn"
    assert Report.parse(line[:-1]) == report


@pytest.mark.parametrize(
    "line", [b"", b"garbage", b"idle - - -", b"a b c d e", b"\xff\xfe - - - -"]
)
def test_garbage_is_a_value_error(line) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Report.parse(line)


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("order", Order)
def test_order_arrives_as_it_was_sent(order, hold) -> None:
    assert parse_order(encode_order(order, hold)[:-1]) == (order, hold)


def test_stop_names_no_run() -> None:
    assert parse_order(STOP[:-1]) is None


def test_reader_gives_whole_lines_and_keeps_the_rest() -> None:
    out, into = os.pipe()
    reader = LineReader(out)
    assert reader.lines() == []
    os.write(into, b"one\ntw")
    assert reader.lines() == [b"one"]
    os.write(into, b"o\nthree\n")
    assert reader.lines() == [b"two", b"three"]
    os.close(into)
    assert reader.lines() == []
    os.close(out)
    assert reader.lines() == []


def test_telling_nobody_is_said_not_raised() -> None:
    out, into = os.pipe()
    assert tell(into, b"x")
    os.close(out)
    assert not tell(into, b"x")
    os.close(into)
