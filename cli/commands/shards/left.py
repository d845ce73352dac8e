# SPDX-License-Identifier: Apache-2.0
"""What a shard still has: open queues, unread messages by group, messages that wait, dead letters, bytes."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from cli.commands.groups.known import offsets_of
from libs.formats.state.system_topics import DEAD_LETTER_PREFIX
from libs.runtime.trust.rights.rules import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reput_client import Client, ShareGroup, Topic

INDEX_WAIT_S: Final = 10.0
"""How long the indexes may take to reach the end of the log: until then groups lack messages in their lag."""
INDEX_PAUSE_S: Final = 0.05


def topics_of(client: Client) -> Iterator[Topic]:
    """Yield the topics of a shard that producers send to: no topic of the store, of a group, or of RocketMQ alone."""
    for topic in client.topics.list():
        if (
            not topic.is_system
            and not topic.set_apart
            and not topic.name.startswith((DEAD_LETTER_PREFIX, RETRY_PREFIX))
        ):
            yield topic


def open_queue_count(topic: Topic) -> int:
    """Return how many queues of a topic take messages at a shard."""
    if topic.share is None:
        return topic.write_queue_count
    return sum(not queue.is_sealed for queue in topic.share.queues)


def left_at(client: Client) -> list[dict[str, Any]]:
    """Return a row for each kind of messages that a shard still has, and a last row for bytes. Raises ReputError."""
    end = client.admin.commitlog_status().max_physical_offset
    _wait_indexed(client, end)
    rows = [
        _row("open queues", count, topic=topic.name)
        for topic in topics_of(client)
        if (count := open_queue_count(topic))
    ]
    groups = _groups(client)
    unread = Counter({(name, queue.topic): 0 for name, group in groups.items() for queue in group.queues})
    for name, group in groups.items():
        for queue in group.queues:
            unread[name, queue.topic] += queue.lag
    for name, offset in offsets_of(client, None, groups):
        unread[name, offset.topic] += offset.lag
    rows += [
        _row("unread messages", count, group=name, topic=topic)
        for (name, topic), count in sorted(unread.items())
        if count
    ]
    rows += [_row("dead letters", group.dead_letter_count, group=name) for name, group in groups.items()]
    delayed = Counter(message.topic for message in client.delayed.list())
    rows += [_row("delayed messages", count, topic=topic) for topic, count in sorted(delayed.items())]
    rows.append(_row("messages of delay levels", sum(level.waiting_count for level in client.delayed.levels())))
    begun = Counter((half.group, half.topic) for half in client.transactions.list())
    rows += [
        _row("open transactions", count, group=name, topic=topic) for (name, topic), count in sorted(begun.items())
    ]
    status = client.admin.commitlog_status()
    size_bytes = status.max_physical_offset - status.min_physical_offset
    return [*(row for row in rows if row["count"]), _row("bytes until retention") | {"left_bytes": size_bytes}]


def _row(left: str, count: int | None = None, *, group: str | None = None, topic: str | None = None) -> dict[str, Any]:
    return {"left": left, "group": group, "topic": topic, "count": count, "left_bytes": None}


def _groups(client: Client) -> dict[str, ShareGroup]:
    """Return the groups that share messages, with their queues."""
    from reput_client import NotFoundError

    found = {}
    for group in list(client.share_groups.list()):
        try:
            found[group.name] = client.share_groups.get(group.name)
        except NotFoundError:  # it was deleted meanwhile
            continue
    return found


def _wait_indexed(client: Client, end_physical_offset: int) -> None:
    """Wait until the indexes have all records up to an offset. Raises UnavailableError."""
    from reput_client import UnavailableError

    end_s = time.monotonic() + INDEX_WAIT_S
    while (indexed := client.admin.indexer_status().indexed_physical_offset) < end_physical_offset:
        if time.monotonic() > end_s:
            raise UnavailableError(
                f"the indexes reach {indexed} of {end_physical_offset} in the log, so counts would lack"
            )
        time.sleep(INDEX_PAUSE_S)
