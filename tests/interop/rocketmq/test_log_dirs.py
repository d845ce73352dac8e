# SPDX-License-Identifier: Apache-2.0
"""A log in two directories, written by Reput and RocketMQ in turns."""

from pathlib import Path

import pytest

from tests.interop.rocketmq.drafts import Drafts
from tests.interop.rocketmq.history import History, Reader
from tests.interop.rocketmq.reput_store import ReputStore
from tests.interop.rocketmq.rocketmq_store import RocketMqStore
from tests.interop.rocketmq.stored import Sizes
from tests.interop.rocketmq.writing import write_reput, write_rocketmq

pytestmark = pytest.mark.interop

WRITERS = ("rocketmq", "reput", "rocketmq")
ROUND_MESSAGE_COUNT = 500


async def test_both_put_segments_into_the_same_places(tmp_path: Path, major: str) -> None:
    """Reput and RocketMQ put a new segment into the same directory, and both read the whole log."""
    sizes, history, drafts = Sizes(), History(), Drafts(9)
    store, places = tmp_path / "store", [tmp_path / "disk1", tmp_path / "disk2"]
    log_dirs = ",".join(map(str, places))
    for writer in WRITERS:
        if writer == "reput":
            async with ReputStore.served(store, sizes, log_dirs=log_dirs) as reput:
                await reput.settle()
                await Reader(history, sizes).check_reput(reput)
                await write_reput(reput, history, drafts, ROUND_MESSAGE_COUNT)
                await reput.settle()
        else:
            async with await RocketMqStore.open(major, store, sizes, log_dirs=log_dirs, index_safe=True) as rocketmq:
                await Reader(history, sizes).check_rocketmq(rocketmq)
                await write_rocketmq(rocketmq, history, drafts, ROUND_MESSAGE_COUNT, has_v2=major == "5")
                await rocketmq.settle()
                await rocketmq.stop()
        numbers = {place: [int(path.name) // sizes.segment_size_bytes for path in place.iterdir()] for place in places}
        assert all(number % 2 == places.index(place) for place, found in numbers.items() for number in found)
    assert min(map(len, numbers.values())) >= 2
    async with ReputStore.served(store, sizes, log_dirs=log_dirs) as reput:
        await reput.settle()
        await Reader(history, sizes).check_reput(reput)
