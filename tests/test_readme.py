"""The README's table of guarantees names tests that exist."""

import re
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def test_each_guarantee_names_a_test_that_exists() -> None:
    named = re.findall(r"\| \[(test_\w+)\]\((tests/[\w/]+\.py)\) \|", README.read_text())
    assert len(named) >= 16
    for name, path in named:
        assert f"def {name}(" in (README.parent / path).read_text(), name
