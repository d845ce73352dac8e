# SPDX-License-Identifier: Apache-2.0
"""Tails of a follower send the same as tails of the leader, for random records, chunks and visible ends."""

import asyncio
import itertools
import random

import pytest
from reput.commitlog.v1 import append_service_pb2 as pb

from services.commitlog.engine.replicate import applier
from tests.support.commitlog import BORN_HOST, message, records, request, synced
from tests.support.replication import caught_up, same_segments
from tests.support.tails import Tail, two


@pytest.fixture(params=[0, applier.JOINED_BYTES_MAX], ids=["completed", "joined"])
def _chunks_are(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record before a chunk is completed first, or the chunk is joined with it."""
    monkeypatch.setattr(applier, "JOINED_BYTES_MAX", request.param)


def any_message(choose: random.Random) -> pb.AppendMessage:
    """A message of any kind: with keys, tags, a delay, of a transaction, to one of several queues."""
    properties = {"KEYS": " ".join(str(choose.randrange(100)) for _ in range(choose.randint(1, 3)))}
    if choose.random() < 0.3:
        properties["TAGS"] = choose.choice(("red", "blue"))
    if choose.random() < 0.2:
        properties["DELAY"] = str(choose.randint(1, 3))
    return message(
        choose.randbytes(choose.choice((0, 10, 300, 2_000))),
        topic=choose.choice(("orders", "payments")),
        queue_id=choose.randrange(3),
        sys_flag=choose.choice((0, 0, 0, 4)),
        properties=properties,
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.usefixtures("_chunks_are")
async def test_tails_of_a_follower_send_the_same_as_tails_of_the_leader(seed: int) -> None:
    """Records of any kind, in chunks of any size, beside visible ends of any place, come once and with equal values."""
    choose, sequences = random.Random(seed), itertools.count()
    async with two() as (leader, follower, wire, one, other):
        wire.chunk_size_bytes = choose.choice((150, 900, 5_000, 1 << 20))
        ours, theirs, few = Tail(follower), Tail(leader), Tail(follower, count_max=3)
        for _ in range(choose.randint(20, 60)):
            writer = pb.Writer(id="w", sequence=next(sequences)) if choose.random() < 0.3 else None
            batch = [any_message(choose) for _ in range(choose.randint(1, 12))]
            await leader.pipeline.append(request(*batch, writer=writer), BORN_HOST)
            if choose.random() < 0.3:
                await synced(choose.choice((leader, follower)))
            if choose.random() < 0.5:
                await asyncio.sleep(0)
        await caught_up(follower, leader)
        for tail in (ours, theirs, few):
            await tail.end()
        assert ours.rows == theirs.rows == few.rows
        assert len(ours.rows) == len(records(leader))
        assert ours.shared_count > 0 == theirs.shared_count
        assert same_segments(one, other)
        assert follower.followers.scanned.held_bytes == 0
