# SPDX-License-Identifier: Apache-2.0
"""What a shard still has, as `reput shards drain` lists it."""

from types import SimpleNamespace
from typing import Any

import pytest
from reput_client import UnavailableError

from cli.commands.shards import left
from cli.commands.shards.shares import client_share
from libs.shards.change import first_shares
from tests.support.memory_shards import topic_with


def shard_with(**counts: Any) -> Any:
    """The client of a shard that has no groups and no messages, but for `counts`."""
    found = {
        "queues": (),
        "offsets": (),
        "delayed": (),
        "levels": 0,
        "begun": (),
        "letters": 0,
        "indexed": 100,
    } | counts
    share = client_share(first_shares(["a"], 2)["a"])
    sealed = share._replace(queues=tuple(queue._replace(is_sealed=True) for queue in share.queues))
    topics = [
        topic_with(sealed, 2),
        topic_with(None, 1)._replace(name="%DLQ%g"),
        topic_with(None, 1)._replace(name="other", set_apart="queue.type=BatchCQ"),
        *found.get("topics", ()),
    ]
    group = SimpleNamespace(name="g", queues=found["queues"], dead_letter_count=found["letters"])
    return SimpleNamespace(
        topics=SimpleNamespace(list=lambda: iter(topics)),
        share_groups=SimpleNamespace(list=lambda: iter([group]), get=lambda _: group),
        groups=SimpleNamespace(list=lambda: iter([SimpleNamespace(name="readers", offsets=found["offsets"])])),
        delayed=SimpleNamespace(
            list=lambda: iter(found["delayed"]), levels=lambda: [SimpleNamespace(waiting_count=found["levels"])]
        ),
        transactions=SimpleNamespace(list=lambda: iter(found["begun"])),
        admin=SimpleNamespace(
            commitlog_status=lambda: SimpleNamespace(min_physical_offset=40, max_physical_offset=100),
            indexer_status=lambda: SimpleNamespace(indexed_physical_offset=found["indexed"]),
        ),
    )


def queue(topic: str, lag: int) -> Any:
    """A group's progress in a queue."""
    return SimpleNamespace(topic=topic, queue_id=0, lag=lag)


@pytest.mark.parametrize(
    ("counts", "row"),
    [
        ({"queues": [queue("t", 2), queue("t", 3), queue("u", 0)]}, ("unread messages", "g", "t", 5)),
        ({"offsets": [queue("t", 4)]}, ("unread messages", "readers", "t", 4)),
        ({"letters": 7}, ("dead letters", "g", None, 7)),
        ({"delayed": [SimpleNamespace(topic="t")]}, ("delayed messages", None, "t", 1)),
        ({"levels": 9}, ("messages of delay levels", None, None, 9)),
        ({"begun": [SimpleNamespace(group="p", topic="t")]}, ("open transactions", "p", "t", 1)),
        ({"topics": [topic_with(None, 3)._replace(name="w")]}, ("open queues", None, "w", 3)),
    ],
)
def test_all_that_is_left(counts: Any, row: tuple[object, ...]) -> None:
    """Each thing has a row with its count. The bytes are always the last row."""
    first, last = left.left_at(shard_with(**counts))
    assert (first["left"], first["group"], first["topic"], first["count"]) == row
    assert (last["left"], last["left_bytes"], last["count"]) == ("bytes until retention", 60, None)


def test_an_empty_shard() -> None:
    """Sealed queues, topics of groups, and topics that RocketMQ alone uses are not counted."""
    assert [row["left"] for row in left.left_at(shard_with())] == ["bytes until retention"]


def test_indexes_that_are_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lag of groups is known only when the indexes have the whole log."""
    monkeypatch.setattr(left, "INDEX_WAIT_S", 0.0)
    with pytest.raises(UnavailableError, match="reach 99 of 100"):
        left.left_at(shard_with(indexed=99))
