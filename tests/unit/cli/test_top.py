# SPDX-License-Identifier: Apache-2.0
"""`reput top`: rates are the changes between two looks, the page fits, and JSON has all fields."""

import json
from typing import Any

import pytest
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.indexer.v1 import index_service_pb2 as index_pb

from cli.commands.state.states import States
from cli.commands.state.top_page import View, document, top_lines
from cli.commands.state.traffic import Place, QueueBounds, Traffic, group_rows, look_at_traffic, topic_rows

BEFORE = Traffic(
    100.0,
    {("orders", 0): QueueBounds(0, 1_000), ("orders", 1): QueueBounds(500, 2_000), ("quiet", 0): QueueBounds(0, 7)},
    {("readers", "orders", 0): Place(900, 100), ("slow", "orders", 1): Place(600, 1_400)},
)
AFTER = Traffic(
    102.0,
    {
        ("orders", 0): QueueBounds(0, 1_200), ("orders", 1): QueueBounds(500, 2_100), ("quiet", 0): QueueBounds(0, 7),
        ("new", 0): QueueBounds(0, 20),
    },
    {("readers", "orders", 0): Place(1_150, 50), ("slow", "orders", 1): Place(650, 1_450)},
)  # fmt: skip


def test_topics() -> None:
    """The in-rate is the growth of a topic's queues, the out-rate the messages taken by its groups.

    The lag is the lag of the slowest group. The busiest topic comes first.
    """
    rows = topic_rows(BEFORE, AFTER)
    assert [row["topic"] for row in rows] == ["orders", "new", "quiet"]
    assert rows[0] == {
        "topic": "orders", "in_per_s": 150.0, "out_per_s": 150.0, "message_count": 2_800, "queue_count": 2, "lag": 1_450
    }  # fmt: skip
    assert (rows[1]["in_per_s"], rows[2]["in_per_s"], rows[2]["lag"]) == (10.0, 0.0, None)
    assert {row["in_per_s"] for row in topic_rows(None, AFTER)} == {None}


def test_groups() -> None:
    """The group with the greatest lag comes first.

    Only a group that takes more messages than arrive has a remaining time.
    """
    slow, readers = group_rows(BEFORE, AFTER)
    assert slow == {"group": "slow", "topic": "orders", "out_per_s": 25.0, "lag": 1_450, "left_s": None}
    assert readers == {"group": "readers", "topic": "orders", "out_per_s": 125.0, "lag": 50, "left_s": 2.0}
    assert [row["out_per_s"] for row in group_rows(None, AFTER)] == [None, None]


def test_what_goes_back_is_no_rate() -> None:
    """A group that was reset has an out-rate of zero, and a queue that lost its tail has an in-rate of zero."""
    later = Traffic(103.0, {("orders", 0): QueueBounds(0, 900)}, {("readers", "orders", 0): Place(0, 900)})
    assert topic_rows(AFTER, later)[0]["in_per_s"] == 0.0
    assert group_rows(AFTER, later)[0]["out_per_s"] == 0.0


class _Some:
    """A client of a store with many queues and a group with many offsets."""

    def __init__(self, count: int) -> None:
        self.queues, self.groups = self, self
        self.count = count
        self.asked = 0

    def list(self) -> Any:
        """Queues first, then the group."""
        from reput_client import ConsumerGroup, ConsumerOffset, Queue

        self.asked += 1
        if self.asked == 1:
            yield Queue("rmq_sys_x", 0, 0, 5, None, None)
            yield from (Queue("t", number, 0, 5, None, None) for number in range(self.count))
        else:
            yield ConsumerGroup("rmq_sys_g", (ConsumerOffset("rmq_sys_x", 0, 1, 4),))
            yield ConsumerGroup("g", tuple(ConsumerOffset("t", number, 1, 4) for number in range(self.count)))


@pytest.mark.parametrize(("count", "is_cut"), [(9_999, False), (20_000, True)])
def test_a_look_has_a_bound(count: int, is_cut: bool) -> None:
    """Of very many queues only the first are looked at, and the page tells this.

    The store's own topics are left out.
    """
    client: Any = _Some(count)
    found = look_at_traffic(client, 1.0)
    assert (len(found.queues), len(found.offsets), found.is_cut) == (9_999, min(count, 10_000), is_cut)


def states(time_s: float, step: int) -> States:
    """The states of the services at a moment; the numbers are multiples of `step`."""
    log = log_pb.GetStatusResponse(
        state=log_pb.LOG_STATE_SERVING, appended_message_count=3_000 * step, max_physical_offset=step << 21,
        confirmed_physical_offset=step << 21, sync_count=40 * step,
        log_directories=[{"path": "/data/commitlog", "disk_total_bytes": 1 << 40, "disk_free_bytes": 1 << 39,
                          "disk_used_percent": 50}],
    )  # fmt: skip
    index = index_pb.GetStatusResponse(
        state=index_pb.REPUT_STATE_LIVE, is_complete=True, indexed_physical_offset=step << 21,
        applied_record_count=3_000 * step,
    )  # fmt: skip
    return States(time_s, {"janitor": "nobody answers at j:1"}, log, index, answer_ms={"commitlog": 1.23})


VIEW = View(states(1_002.0, 2), AFTER, states(1_000.0, 1), BEFORE)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_page(width: int) -> None:
    """The verdict first, then services, disks, topics, groups; nothing is wider than the terminal."""
    lines = list(top_lines(VIEW, width, 40))
    text = " ".join(" ".join(lines).split())
    assert lines[:2] == ["not well", "- nobody answers at j:1"]
    assert "1,500 messages/s, 1.0 MiB/s, 20 syncs/s, answers in 1 ms" in text
    assert "1,500 records/s, up to date" in text
    assert "50 % used, 512 GiB free of 1.0 TiB: /data/commitlog" in text
    assert [line.split()[:2] for line in lines if line.startswith("orders")] == [["orders", "150"]]
    assert [line.split()[-2:] for line in lines if line.startswith("readers")] == [["2", "s"]]
    assert max(map(len, lines)) <= width


def test_the_first_page_has_no_rates() -> None:
    """The first page shows at once all values except the rates."""
    text = "\n".join(top_lines(View(states(1_000.0, 1), AFTER), 80, 40))
    assert "/s," not in text
    assert "2,800" in text


@pytest.mark.parametrize("height", [24, 50])
def test_a_page_of_many_topics_fits(height: int) -> None:
    """The busiest topics are shown, and groups keep their share of the lines.

    A line has the number of the others.
    """
    queues = {(f"t{number:03}", 0): QueueBounds(0, number) for number in range(500)}
    offsets = {(f"g{number:03}", "t000", 0): Place(0, number) for number in range(100)}
    lines = list(top_lines(View(states(1.0, 1), Traffic(1.0, queues, offsets)), 80, height))
    assert height - 3 <= len(lines) <= height
    assert any(line.startswith("t499 ") for line in lines)
    assert any(line.startswith("g099 ") for line in lines)
    assert len([line for line in lines if " more: reput top --once --json" in line]) == 2


def test_json() -> None:
    """Numbers are exact, and None if two looks do not give a value."""
    found: Any = json.loads(json.dumps(document(VIEW)))
    assert found["commitlog"] == {
        "messages_per_s": 1500.0, "bytes_per_s": float(1 << 20), "syncs_per_s": 20.0, "answer_ms": 1.2
    }  # fmt: skip
    assert found["indexer"] == {"records_per_s": 1500.0, "behind_bytes": 0, "answer_ms": None}
    assert (found["is_healthy"], found["is_cut"]) == (False, False)
    assert (found["topics"], found["groups"]) == (topic_rows(BEFORE, AFTER), group_rows(BEFORE, AFTER))
    assert found["disks"][0]["path"] == "/data/commitlog"
    first: Any = document(View(states(1_000.0, 1), AFTER))
    assert first["commitlog"]["messages_per_s"] is None
