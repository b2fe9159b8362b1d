"""What an agent can do: ask the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import InterfaceError, OperationalError

from demo_project.knowledge import graph
from runcontract import PermanentError, TransientError

from .planner import Call

NAMES = "find", "dependents_of", "dependencies_of", "licences_under", "heaviest_chains"
TOOLS: dict[str, Callable[..., Any]] = {name: getattr(graph, name) for name in NAMES}


async def use(call: Call) -> Any:
    """The tool's result; what goes wrong is said with the tool's name."""
    if call.tool not in TOOLS:
        raise PermanentError(f"There is no tool {call.tool!r}.")
    try:
        return await sync_to_async(TOOLS[call.tool])(*call.arguments)
    except (OperationalError, InterfaceError) as error:
        raise TransientError(f"The tool {call.tool} lost the database: {error}") from error
    except Exception as error:
        raise PermanentError(f"The tool {call.tool} failed: {error}") from error
