# SPDX-License-Identifier: Apache-2.0
"""Messages into each topic and out to each group, from two looks at ends of queues and groups' offsets.

A look costs a call for a thousand queues, and a call for a thousand groups; both numbers have a limit. Rates are the
changes in between, so that no service has to keep any.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from libs.formats.state.system_topics import is_system_topic

if TYPE_CHECKING:
    from reput_client import Client

QUEUES_MAX = 10_000
OFFSETS_MAX = 10_000


class QueueBounds(NamedTuple):
    """The bounds of a queue. `end` is exclusive."""

    first: int
    end: int


class Place(NamedTuple):
    """A group's offset in a queue, and the number of messages that it has not read."""

    queue_offset: int
    lag: int


class Traffic(Struct, frozen=True):
    """A look at the queues and groups of all topics except the store's own."""

    time_s: float
    """Start of the look, by the monotonic clock."""
    queues: dict[tuple[str, int], QueueBounds] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], Place] = field(default_factory=dict)
    """By group, topic and queue."""
    is_cut: bool = False
    """There are more queues or offsets than the limits."""


def look_at_traffic(client: Client, time_s: float) -> Traffic:
    """Ask the Indexer. Raises ReputError."""
    found = list(islice(client.queues.list(), QUEUES_MAX + 1))
    queues = {
        (queue.topic, queue.queue_id): QueueBounds(queue.min_queue_offset, queue.max_queue_offset)
        for queue in found[:QUEUES_MAX]
        if not is_system_topic(queue.topic)
    }
    places = (
        ((group.name, offset.topic, offset.queue_id), Place(offset.queue_offset, offset.lag))
        for group in client.groups.list()
        for offset in group.offsets
        if not is_system_topic(offset.topic)
    )
    offsets = list(islice(places, OFFSETS_MAX + 1))
    is_cut = len(found) > QUEUES_MAX or len(offsets) > OFFSETS_MAX
    return Traffic(time_s, queues, dict(offsets[:OFFSETS_MAX]), is_cut)


def topic_rows(before: Traffic | None, after: Traffic) -> list[dict[str, object]]:
    """Return a row for each topic, the busiest first. Without a look before the rates are None."""
    seconds = _seconds(before, after)
    taken = _taken(before, after)
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for (topic, queue_id), bounds in after.queues.items():
        start = _end_before(before, (topic, queue_id), bounds)
        sums[topic] = [
            total + one
            for total, one in zip(sums[topic], (bounds.end - start, bounds.end - bounds.first, 1), strict=True)
        ]
    lags: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    out: dict[str, int] = defaultdict(int)
    for (group, topic, queue_id), place in after.offsets.items():
        lags[topic][group] += place.lag
        out[topic] += taken.get((group, topic, queue_id), 0)
    rows: list[dict[str, object]] = [
        {
            "topic": topic,
            "in_per_s": _rate(came, seconds),
            "out_per_s": _rate(out[topic], seconds),
            "message_count": count,
            "queue_count": queue_count,
            "lag": max(lags[topic].values(), default=None),
        }
        for topic, (came, count, queue_count) in sums.items()
    ]
    return sorted(rows, key=_busyness)


def group_rows(before: Traffic | None, after: Traffic) -> list[dict[str, object]]:
    """Return a row for each group and topic of it, the largest lag first.

    `left_s` is the time to catch up at this pace; None if it does not catch up, or is not known.
    """
    seconds = _seconds(before, after)
    taken = _taken(before, after)
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for (group, topic, queue_id), place in after.offsets.items():
        bounds = after.queues.get((topic, queue_id))
        came = bounds.end - _end_before(before, (topic, queue_id), bounds) if bounds is not None else 0
        row = sums[group, topic]
        row[0] += taken.get((group, topic, queue_id), 0)
        row[1] += came
        row[2] += place.lag
    rows: list[dict[str, object]] = []
    for (group, topic), (out, came, lag) in sums.items():
        gained = (out - came) / seconds if seconds else 0.0
        left_s = round(lag / gained, 1) if lag and gained > 0 else None
        rows.append({"group": group, "topic": topic, "out_per_s": _rate(out, seconds), "lag": lag, "left_s": left_s})
    return sorted(rows, key=lambda row: (-int(str(row["lag"])), str(row["group"]), str(row["topic"])))


def _taken(before: Traffic | None, after: Traffic) -> dict[tuple[str, str, int], int]:
    """Return the number of messages that groups read in between. A group that was moved back has read none."""
    if before is None:
        return {}
    return {
        key: max(place.queue_offset - before.offsets[key].queue_offset, 0)
        for key, place in after.offsets.items()
        if key in before.offsets
    }


def _end_before(before: Traffic | None, key: tuple[str, int], bounds: QueueBounds) -> int:
    """Return the end of a queue at the look before. A queue that was not there has begun since."""
    if before is None:
        return bounds.end
    return min(before.queues[key].end, bounds.end) if key in before.queues else bounds.first


def _seconds(before: Traffic | None, after: Traffic) -> float:
    return after.time_s - before.time_s if before is not None else 0.0


def _rate(count: int, seconds: float) -> float | None:
    return round(count / seconds, 1) if seconds > 0 else None


def _busyness(row: dict[str, object]) -> tuple[float, float, str]:
    numbers = [float(str(row[name] or 0)) for name in ("in_per_s", "out_per_s", "message_count")]
    return (-numbers[0] - numbers[1], -numbers[2], str(row["topic"]))
