# SPDX-License-Identifier: Apache-2.0

"""Follow a topic as a group, with asyncio, until no message came for ten seconds. Needs a running store: `reput up`."""

import asyncio

from reput_client import aio


async def main() -> None:
    """Print each message and commit it."""
    async with aio.connect() as client, client.consumer("orders", group="printer") as consumer:
        while (message := await consumer.poll(timeout_s=10)) is not None:
            print(message.queue_id, message.queue_offset, message.body.decode(errors="replace"))
            await consumer.commit()


asyncio.run(main())
