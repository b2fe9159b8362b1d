"""Models to plug into the agents' seam by AGENT_MODEL."""

import asyncio
from collections.abc import Sequence
from typing import Any

from demo_project.agents.planner import Answer, Call


class Restless:
    """Never has an answer, only one more look, not in haste."""

    pause = 0.05

    async def next_move(self, question: str, steps: Sequence[dict[str, Any]]) -> Call | Answer:
        await asyncio.sleep(self.pause)
        return Call("find", ("app",))


class Ponderer(Restless):
    """Takes an hour for each thought."""

    pause = 3600


class Fantasist:
    """Calls what there is not."""

    async def next_move(self, question: str, steps: Sequence[dict[str, Any]]) -> Call | Answer:
        return Call("ask_an_oracle")
