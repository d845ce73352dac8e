# SPDX-License-Identifier: Apache-2.0
"""Durable: the time at which a service may answer that an appended change is done.

A change is done when the batch is as durable as the log promises: with the role `sync_master` on the disks of the
in-sync set, else by `flush_mode`. The log knows its role. With `is_late`, the answer to an append says that the wait
was too short. Every service that appends for a caller waits here, so that the rule is in a single place.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from libs.requests.errors import NotDurableYet, PeerError

DURABLE_S = 30.0
"""Time for which a batch is sent again. A lost member of the in-sync set does not count any more after
`replica_lag_ms_max`, 10 s, so that waits of the usual length succeed."""
AGAIN_S = 0.2
"""Pause after a temporary refusal. A late answer needs no pause: the log itself has waited."""
PASSING = frozenset({"NOT_ENOUGH_REPLICAS", "WINDOW_FULL"})
"""Reasons of a log that stays leader, and accepts the same batch a moment later."""


class Result(Protocol):
    """An AppendResult."""

    @property
    def is_late(self) -> bool:
        """Whether the batch is not as durable yet as the log promises."""
        ...

    @property
    def is_repeated(self) -> bool:
        """Whether the log already had the batch. Then this answer has no places of its messages."""
        ...

    @property
    def durability(self) -> int:
        """The durability that the batch has reached."""
        ...


R = TypeVar("R", bound=Result)


def is_passing(error: Exception) -> bool:
    """Return whether a log has refused a batch for a temporary reason, which ends by itself."""
    return isinstance(error, PeerError) and error.reason in PASSING


def line_of(error: Exception) -> str:
    """Return an error as a part of a line, with the code of a call."""
    return error.line if isinstance(error, PeerError) else str(error)


async def until_durable(
    append: Callable[[], Awaitable[R]],
    *,
    is_repeatable: bool,
    is_passing: Callable[[Exception], bool] = is_passing,
    describe: Callable[[Exception], str] = line_of,
    within_s: float = DURABLE_S,
) -> R:
    """Append a batch, and return the answer with its places, once it is as durable as the log promises.

    `is_repeatable`: the batch names its writer, so it is sent again, and the log waits for it again. `is_passing`
    returns whether an append may succeed after an error of a repeated batch, `describe` returns the error as a line.
    Raises the errors of the first append, with their usual meaning, and only NotDurableYet from then on: the batch is
    in the log, and may be undone.
    """
    clock = asyncio.get_running_loop().time
    until_s = clock() + within_s
    stored = last = await append()
    while last.is_late:
        if not is_repeatable or clock() >= until_s:
            raise NotDurableYet(durability=last.durability)
        try:
            last = await append()
        except Exception as error:
            if not is_passing(error):
                raise NotDurableYet(durability=last.durability, reason=describe(error)) from error
            await asyncio.sleep(AGAIN_S)
        else:
            stored = stored if last.is_repeated else last  # a failover lost it, and the new leader stored it again
    return stored
