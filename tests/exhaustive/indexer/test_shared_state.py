# SPDX-License-Identifier: Apache-2.0
"""Sharing: two Indexers know the same after random commits, kills and role changes."""

import asyncio
import random

import pytest

from libs.formats.records.state_record import StateRecord
from libs.formats.state.system_topics import STATE_QUEUE_ID, STATE_TOPIC
from tests.support.patience import eventually
from tests.support.shared_log import Copies, found, knows


@pytest.mark.parametrize("seed", range(8))
async def test_histories(seed: int) -> None:
    """After commits, deletions, kills and role changes in any order both Indexers know the same."""
    chance = random.Random(seed)
    copies = Copies()
    for _ in range(6):
        killed = [chance.random() < 0.5, chance.random() < 0.5]
        async with (
            copies.leader.running(is_killed=killed[0]) as one,
            copies.follower.running(is_killed=killed[1]) as other,
        ):
            for _ in range(chance.randrange(8)):
                indexer = chance.choice([one, other])
                group = chance.choice("gh")
                if chance.random() < 0.2:
                    await indexer.groups.delete(group)
                else:
                    indexer.groups.commit(group, {("T", chance.randrange(3)): chance.randrange(100)})
                await asyncio.sleep(chance.choice([0, 0.01, 0.03]))
            await one.follow.shared_state.send()  # what was changed last is not promised
            await other.follow.shared_state.send()
        if chance.random() < 0.5:
            copies.change_places()
    async with copies.leader.running() as one, copies.follower.running() as other:
        last = StateRecord(origin="x", offsets={"last": {"T": {0: 1}}})
        copies.log.append(STATE_TOPIC, STATE_QUEUE_ID, body=last.encode())
        await eventually(lambda: knows(one, 1, "last") and knows(other, 1, "last"))
        for group in "gh":
            for queue_id in range(3):
                assert found(one, group, "T", queue_id) == found(other, group, "T", queue_id)
