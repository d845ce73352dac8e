# SPDX-License-Identifier: Apache-2.0
"""Prepared: a previewed change with the function that makes it; and the outcome of a change whose call failed."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import grpc
from msgspec.structs import replace
from reput_client import InvalidArgumentError, NotFoundError, ReputError
from reput_client.aio import AsyncClient

from services.console.ask.store import NO_CONNECTION, Asking
from services.console.pages.change import Outcome, Preview

Arguments = Mapping[str, str]
"""The arguments of a change, as they were sent."""
UNKNOWN_REASONS = frozenset(
    {"NOT_DURABLE_YET", "LEASE_OVER", "INTERNAL", "DEPENDENCY_UNAVAILABLE", "RECOVERING", "STOPPING"}
)
"""Reasons of answers after which the change may stay: a service lost its log, or stopped, while the call ran."""
REFUSAL_CODES = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED,
    }
)  # fmt: skip
"""Codes of answers without a reason that say that nothing was done."""


class Result(NamedTuple):
    """The result of a change, in words and as an outcome."""

    text: str
    outcome: Outcome = "done"


Apply = Callable[[AsyncClient], Awaitable[Result]]
"""Makes a change with a client that repeats no call. Raises ReputError."""


class Prepared(NamedTuple):
    """A preview, and the function that makes the change; None if there is nothing to confirm."""

    page: Preview
    apply: Apply | None = None


def outcome_of(error: ReputError) -> Outcome:
    """Return the outcome of a change whose only attempt failed with this error."""
    if error.reason:
        return "unknown" if error.reason in UNKNOWN_REASONS else "not_done"
    return "not_done" if error.code in REFUSAL_CODES or error.text.startswith(NO_CONNECTION) else "unknown"


async def with_refusal(asking: Asking, page: Preview, change: Awaitable[Prepared]) -> Prepared:
    """Return a prepared change; if it can't be prepared, only its page, with the reason or a gap."""
    refusal = ""
    try:
        return await change
    except (InvalidArgumentError, NotFoundError) as error:
        refusal = error.text
    except ReputError as error:
        asking.tell(f"the preview of this change ({page.title})", error)
    except ValueError as error:
        refusal = str(error)
    return Prepared(replace(page, gaps=asking.gaps, refusal=refusal))


def number_of(arguments: Arguments, name: str, *, low: int, high: int) -> int | None:
    """Return an argument as a number, None if it is empty. Raises ValueError."""
    text = arguments.get(name, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or not low <= int(text) <= high:
        raise ValueError(f"{name} is {text[:40]!r}: a number from {low} to {high:,} is expected")
    return int(text)
