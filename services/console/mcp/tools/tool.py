# SPDX-License-Identifier: Apache-2.0
"""Tool: a question that a caller can ask, with its arguments."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from services.console.ask.store import Store
from services.console.mcp.answers import Answer
from services.console.mcp.arguments import Arguments


class Tool(Struct, frozen=True):
    """A tool of the catalogue. `run` takes the store and checked arguments, and may raise Refused."""

    title: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Store, Any], Awaitable[Answer]]
