# SPDX-License-Identifier: Apache-2.0
"""Groups that are held up, with a message that has waited for a while and a reason; and the delay levels.

Imported only when a Delivery serves. Bounded: the first GROUP_COUNT_MAX groups are asked for, LINE_COUNT_MAX are shown.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from reput_client import Client, DelayLevel, ReputError, ShareGroup

from libs.figures import duration_text, many

GROUP_COUNT_MAX, CALLS_AT_ONCE = 100, 16
LINE_COUNT_MAX = 5
STILL_S = 15.0
"""Least age of the oldest message: a queue with a reason may make progress in the next moment."""


class Still(NamedTuple):
    """A group that is held up in a topic, and the reason in the queue with the oldest message."""

    group: str
    topic: str
    queue_count: int
    oldest_s: float
    reason: str


def look_still(client: Client) -> list[Still]:
    """Ask Delivery for the groups that are held up, the longest first. A Delivery that does not answer has none."""
    try:
        names = [group.name for group in itertools.islice(client.share_groups.list(), GROUP_COUNT_MAX)]
    except ReputError:
        return []
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        return still_of(group for group in pool.map(lambda name: _find(client, name), names) if group is not None)


def look_levels(client: Client) -> Sequence[DelayLevel]:
    """Ask Delivery for the delay levels. A Delivery that does not answer has none."""
    try:
        return client.delayed.levels()
    except ReputError:
        return []


def level_lines(levels: Iterable[DelayLevel]) -> Iterator[str]:
    """Yield a sentence about the messages that wait in all levels, if there are any."""
    waiting = [level for level in levels if level.waiting_count]
    if count := sum(level.waiting_count for level in waiting):
        late_s = max(level.lateness_s for level in waiting)
        late = f", the oldest {duration_text(late_s)} late" if late_s > 1 else ""
        yield f"{many(count, 'delayed message')} {'waits' if count == 1 else 'wait'}{late}"


def still_of(groups: Iterable[ShareGroup]) -> list[Still]:
    """Return the groups that are held up, the longest first."""
    found: list[Still] = []
    for group in groups:
        queues = [one for one in group.queues if one.standstills and (one.lag_s or 0.0) >= STILL_S]
        for topic in dict.fromkeys(queue.topic for queue in queues):
            some = [queue for queue in queues if queue.topic == topic]
            worst = max(some, key=lambda queue: queue.lag_s or 0.0)
            found.append(Still(group.name, topic, len(some), worst.lag_s or 0.0, worst.standstills[0]))
    return sorted(found, key=lambda still: -still.oldest_s)


def still_lines(found: Iterable[Still]) -> Iterator[str]:
    """Yield a sentence for each of the first groups, and the number of the others."""
    rows = list(found)
    for one in rows[:LINE_COUNT_MAX]:
        queues = f" in {one.queue_count} queues" if one.queue_count > 1 else ""
        oldest = duration_text(one.oldest_s)
        yield f"{one.group} at {one.topic} is held up{queues}, its oldest message for {oldest}: {one.reason}"
    if len(rows) > LINE_COUNT_MAX:
        yield f"{len(rows) - LINE_COUNT_MAX} more groups and topics are held up: `reput groups list`"


def _find(client: Client, name: str) -> ShareGroup | None:
    try:
        return client.share_groups.get(name)
    except ReputError:  # it was deleted meanwhile, or Delivery has just stopped
        return None
