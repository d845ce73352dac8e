# SPDX-License-Identifier: Apache-2.0
"""What a name and attributes say of how RocketMQ keeps a topic."""

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
    """Whatever is not the served value sets a topic apart; other attributes mean nothing here."""
    assert set_apart.why_by_attributes(attributes) == why


def test_names() -> None:
    """Light queues have a prefix, anywhere else it means nothing."""
    assert set_apart.why_by_name("%LMQ%a/b") == set_apart.LIGHT_QUEUE
    assert set_apart.why_by_name("a%LMQ%b") == set_apart.why_by_name("%RETRY%a") == ""
