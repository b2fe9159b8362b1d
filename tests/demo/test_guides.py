"""What a guide shows is the code that runs."""

import re
from pathlib import Path

import pytest

from demo_project.state import CHECKOUT

GUIDES = [
    "a-dead-letter-table",
    "a-pass-that-starts-anew",
    "an-agent-that-can-be-cancelled",
    "the-delivery-row-is-the-run",
]
SOURCES = [path.read_text() for path in Path(CHECKOUT, "demo_project").rglob("*.py")]


def excerpts(guide: str) -> list[str]:
    """The pieces of its Python blocks; a line of three dots stands for what is left out."""
    text = Path(CHECKOUT, "docs", "guides", f"{guide}.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [piece for block in blocks for piece in re.split(r"^\.\.\.\n", block, flags=re.M)]


@pytest.mark.parametrize("guide", GUIDES)
def test_excerpts_are_in_the_source(guide: str) -> None:
    found = excerpts(guide)
    assert len(found) >= 4
    for piece in found:
        assert any(piece in source for source in SOURCES), piece
