# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's way of keeping a topic, derived from its name and attributes."""

import pytest

from libs.formats.state import set_apart


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({}, ""),
        ({"queue.type": "SimpleCQ", "cleanup.policy": "DELETE", "message.type": "FIFO", "reserve.time": "-1"}, ""),
        ({"queue.type": "BatchCQ"}, set_apart.BATCH_QUEUE),
        ({"cleanup.policy": "COMPACTION", "message.type": "NORMAL"}, set_apart.COMPACTED),
        ({"cleanup.policy": "COMPACTION", "queue.type": "BatchCQ"}, "queue.type=BatchCQ, cleanup.policy=COMPACTION"),
        ({"queue.type": "RocksDBCQ"}, "queue.type=RocksDBCQ"),
        ({"queue.type": ""}, "queue.type="),
        ({"+queue.type": "BatchCQ"}, ""),  # so commands to RocketMQ name it; topics.json never does
    ],
)
def test_attributes(attributes: dict[str, str], why: str) -> None:
    """Each value other than the served value sets a topic apart; other attributes have no effect."""
    assert set_apart.why_by_attributes(attributes) == why


def test_names() -> None:
    """Light queues have a prefix, which has no meaning anywhere else in a name."""
    assert set_apart.why_by_name("%LMQ%a/b") == set_apart.LIGHT_QUEUE
    assert set_apart.why_by_name("a%LMQ%b") == set_apart.why_by_name("%RETRY%a") == ""
