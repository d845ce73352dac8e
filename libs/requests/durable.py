# SPDX-License-Identifier: Apache-2.0
"""Durable: when a service may answer that something is done which it has appended to the log.

Done means that the log has the batch as safely as it promises: with the role `sync_master` on the disks of the in-sync
set, else as `flush_mode` says. The log knows its role, and the answer to an append says with `is_late` that the wait
was too short. Every service that appends for a caller waits here, so that the rule is in one place.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from libs.requests.errors import NotDurableYet

DURABLE_S = 30.0
"""How long a batch is sent again. A member of the in-sync set that is lost counts no more after `replica_lag_ms_max`,
10 s, so that waits of the usual length end well."""
AGAIN_S = 0.2
"""Pause after a refusal that passes. A late answer needs none: the log itself has waited."""


class Result(Protocol):
    """An AppendResult."""

    @property
    def is_late(self) -> bool:
        """Whether the batch is not as durable yet as the log promises."""
        ...

    @property
    def is_repeated(self) -> bool:
        """Whether the log had the batch, so that this answer does not tell where its messages are."""
        ...

    @property
    def durability(self) -> int:
        """How durable it is."""
        ...


R = TypeVar("R", bound=Result)


async def until_durable(
    append: Callable[[], Awaitable[R]],
    *,
    is_repeatable: bool,
    is_passing: Callable[[Exception], bool],
    describe: Callable[[Exception], str] = str,
    within_s: float = DURABLE_S,
) -> R:
    """Append a batch, and return the answer that tells where it is, once it is as durable as the log promises.

    `is_repeatable`: the batch names its writer, so it is sent again, and the log waits for it again. `is_passing` tells
    of an error of a repeated batch whether the next one may go well, `describe` what it says in a line. Raises what the
    first append raises, for which it means what it says, and NotDurableYet from then on: the batch is in the log, and
    may be given up.
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
            stored = stored if last.is_repeated else last  # a failover took it, and the new leader stored it anew
    return stored
