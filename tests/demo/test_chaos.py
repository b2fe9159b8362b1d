"""Stories that are struck end as an undisturbed one does."""

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from demo_project.demo.chaos import KINDS, Ending, blows
from demo_project.state import CHECKOUT

STORY = ["--limit", "15", "--seed", "4", "--moments", "3"]


def test_blows_are_picked_by_seed_and_of_each_kind() -> None:
    picked = [*blows(6, 1, runs=50)]
    assert picked == [*blows(6, 1, runs=50)] != [*blows(6, 2, runs=50)]
    assert Counter(blow.kind for blow in picked) == dict.fromkeys(KINDS, 2)
    assert all(0 <= blow.ended < 50 for blow in picked)


def test_endings_that_differ_say_in_what() -> None:
    calm = Ending({"nodes": [], "edges": []}, frozenset({"<a>"}), frozenset(), {})
    struck = Ending({"nodes": [], "edges": []}, frozenset(), frozenset({("a", "b", "c")}), {})
    assert calm.differences(calm) == []
    assert calm.differences(struck) == ["delivered", "dead_letters"]


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_three_moments_change_nothing_but_time() -> None:
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "manage.py", "demo_chaos", *STORY],
        cwd=CHECKOUT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the same end") == 3
    assert "3 moments: all end as the undisturbed one" in done.stdout
    assert re.search(r", [1-9] lost, .* mails", done.stdout), done.stdout
