# SPDX-License-Identifier: Apache-2.0
"""Tool: a question that a caller can ask, with its arguments."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from services.console.ask.store import Store
from services.console.mcp.answers import Answer
from services.console.mcp.arguments import Arguments


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of the catalogue. `run` takes the store and checked arguments, and may raise Refused."""

    title: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Store, Any], Awaitable[Answer]]
