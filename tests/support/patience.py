# SPDX-License-Identifier: Apache-2.0
"""How long tests wait for what must happen: longer than any machine takes, so that only what hangs reaches it."""

import asyncio
from collections.abc import Callable

LIMIT_S = 240.0


async def eventually(condition: Callable[[], bool], *, timeout_s: float = LIMIT_S) -> None:
    """Wait until something that other tasks bring about holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.002)
