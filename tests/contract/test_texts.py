"""Texts can be stored and read after they were cleaned, and say what was cut."""

import json

import pytest

from runcontract.contract.texts import beginning, both_ends, clean, whole_words


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\x00b", r"a\x00b"),
        ("a\ud800b", r"a\ud800b"),
        ("\udcff\udcfe", r"\udcff\udcfe"),
        ("\x1b[31mred\x08", r"\x1b[31mred\x08"),
        ("\rstart", r"\x0dstart"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("\x7f\x9b", r"\x7f\x9b"),
        ("line\r\nline\n\tend", "line\nline\n\tend"),
        ("ж€😀\u200f", "ж€😀\u200f"),
    ],
)
def test_what_cannot_be_stored_or_seen_becomes_visible(raw: str, shown: str) -> None:
    assert clean(raw) == shown
    assert "\\u0000" not in json.dumps(clean(raw))
    clean(raw).encode()


def test_a_short_text_is_not_cut() -> None:
    assert beginning("ж" * 100, 200) == "ж" * 100
    assert both_ends("ж" * 100, 200) == "ж" * 100


@pytest.mark.parametrize("letter", ["a", "ж", "€", "😀"])
@pytest.mark.parametrize("shift", range(4))
def test_a_cut_falls_on_a_character_and_says_how_much_is_gone(letter: str, shift: int) -> None:
    text = "a" * shift + letter * 1000
    cut = beginning(text, 500)
    assert len(cut.encode()) <= 500
    kept, said = cut.split("… [")
    assert text.startswith(kept)
    assert said == f"{len(text) - len(kept):,} more characters not stored]"


def test_what_was_cut_before_is_counted_in() -> None:
    assert beginning("abc", 100, lost=2_000) == "abc… [2,000 more characters not stored]"


@pytest.mark.parametrize("letter", ["a", "ж", "😀"])
def test_both_ends_survive_a_cut_in_the_middle(letter: str) -> None:
    text = f"first {letter * 1000} last"
    cut = both_ends(text, 500)
    assert len(cut.encode()) <= 500
    head, said, tail = cut.split("\n")
    assert head.startswith("first ")
    assert tail.endswith(" last")
    assert said == f"[… {len(text) - len(head) - len(tail):,} characters not stored …]"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("short", "short"),
        ("one two three postgres://u:SECRET@h", "one two three"),
        ("one\tpostgres://u:SECRET@h", "one\tpostgr"),
        ("postgres://u:SECRET@host", "postgres:/"),
    ],
)
def test_a_cut_before_masking_leaves_no_half_word(text: str, kept: str) -> None:
    assert whole_words(text, 20) == kept
