# SPDX-License-Identifier: Apache-2.0
"""Which messages of a topic a rule lets expire, against a plain model."""

import random

import pytest

from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.answer import topic_expiry
from services.indexer.engine.answer.topic_expiry import Expiry
from tests.support.fake_log import FakeLog
from tests.support.indexer import running
from tests.support.patience import eventually
from tests.unit.services.indexer.engine.test_online_rebuild import caught_up

SEED, ROUND_COUNT = 7, 60


async def test_it_agrees_with_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random rules over a growing log: the same messages expire as in a list, with blocks of few units."""
    monkeypatch.setattr(topic_expiry, "UNIT_COUNT", 3)
    choose, log, begin = random.Random(SEED), FakeLog(), 0
    records: list[tuple[int, int, int]] = []
    async with running(log, MemoryFs()) as indexer:
        expiry = indexer.upkeep.expiry
        for number in range(ROUND_COUNT):
            for _ in range(choose.randrange(4)):
                start = len(log.data)
                one = log.append("T", choose.randrange(3), body=bytes(choose.randrange(200)), step_ms=1_000)
                records.append((start, len(log.data) - start, one.store_time_ms))
            log.append("other")
            await caught_up(indexer, log)
            shown = [one for one in records if one[0] >= begin]
            least_ms = choose.choice((None, *(time_ms + choose.randrange(2) for _, _, time_ms in records)))
            most = choose.choice((0, choose.randrange(1, 2_000)))
            found = await expiry.of("T", min_store_time_ms=least_ms, size_bytes_max=most)
            kept = [one for one in shown if least_ms is None or one[2] >= least_ms]
            while most and sum(size for _, size, _ in kept) > most:
                kept.pop(0)
            if not shown:
                assert found == Expiry()
            elif not kept:
                assert (found.kept_message_count, found.expired_message_count) == (0, len(shown)), number
                assert found.begin_physical_offset == sum(shown[-1][:2])
            else:
                size_bytes = sum(size for _, size, _ in kept) if most else 0
                expected = Expiry(kept[0][0], len(shown) - len(kept), len(kept), size_bytes, kept[0][2])
                assert found == expected, number
            if choose.random() < 0.3 and found.expired_message_count:
                begin = found.begin_physical_offset
                log.topic_begins = {"T": begin}
                await indexer.indexes.begin_topics(log.topic_begins)
                await eventually(lambda: indexer.indexes.history.topic_begins == log.topic_begins)


async def test_a_topic_without_messages() -> None:
    """Without messages nothing expires."""
    async with running(FakeLog(), MemoryFs()) as indexer:
        assert await indexer.upkeep.expiry.of("T", min_store_time_ms=5, size_bytes_max=5) == Expiry()
