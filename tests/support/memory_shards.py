# SPDX-License-Identifier: Apache-2.0
"""Shards in memory for the commands: logs that take shares of a topic by the rules of the CommitLog, and can fail."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import grpc
from reput_client import (
    AbortedError,
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    Topic,
    TopicShare,
    UnavailableError,
)

from cli.commands.shards.shares import client_share, known_share
from libs.formats.config import topic_share as known
from libs.shards.change import first_shares

TOPIC = "orders"
AWAY = UnavailableError("it does not listen", code=grpc.StatusCode.UNAVAILABLE)


class Log:
    """The topics of a shard: a single topic. Calls may fail: before a read, and before and after a write."""

    queue_count_max = 1_024

    def __init__(self, topic: Topic | None = None) -> None:
        self.topic, self.write_count = topic, 0
        self.before_read: Callable[[], None] = lambda: None
        self.before_write: Callable[[], None] = lambda: None
        self.after_write: Callable[[], None] = lambda: None

    def get(self, _: str) -> Topic:
        """See Topics."""
        self.before_read()
        if self.topic is None:
            raise NotFoundError("no topic", code=grpc.StatusCode.NOT_FOUND, reason="TOPIC_NOT_FOUND")
        return self.topic

    def create(self, name: str, *, read_queue_count: int, write_queue_count: int, **others: Any) -> Topic:
        """See Topics."""
        self.before_write()
        if self.topic is not None:
            raise AlreadyExistsError("it exists", code=grpc.StatusCode.ALREADY_EXISTS, reason="TOPIC_EXISTS")
        return self._put(Topic(name, read_queue_count, write_queue_count, is_system=False, **others))

    def update(self, _: str, *, share: TopicShare | None = None, **counts: int | None) -> Topic:
        """See Topics. Calls without a share never fail by themselves."""
        assert self.topic is not None
        changed = self.topic._replace(**{name: count for name, count in counts.items() if count})
        if share is not None:
            self.before_write()
            return self._put(changed._replace(share=share))
        if changed.write_queue_count > self.queue_count_max:
            raise refused("write_queue_count")
        self.topic = changed
        return changed

    def _put(self, topic: Topic) -> Topic:
        assert topic.share is not None
        before, share = self.share, known_share(topic.share)
        if topic.write_queue_count > self.queue_count_max:
            raise refused("write_queue_count")
        if before is not None and share != before and share.version <= before.version:
            raise AbortedError("not newer", code=grpc.StatusCode.ABORTED, reason="SHARE_OUTDATED")
        if share.fault(write_queue_count=topic.write_queue_count) or share.fault_after(before):
            raise refused("share")
        self.topic, self.write_count = topic, self.write_count + (share != before)
        self.after_write()
        return topic

    @property
    def share(self) -> known.TopicShare | None:
        """The share of the topic."""
        return None if self.topic is None or self.topic.share is None else known_share(self.topic.share)


def refused(field: str) -> InvalidArgumentError:
    """The error of a log for a wrong argument."""
    code = grpc.StatusCode.INVALID_ARGUMENT
    return InvalidArgumentError("wrong", code=code, reason="BAD_ARGUMENT", fields=(field,))


class Shards:
    """Shards a, b, c: with the topic in six queues, or with the topic whole at the shard `home`."""

    def __init__(self, home: str = "") -> None:
        self.logs = {name: Log() for name in "abc"}
        if home:
            self.logs[home].topic = topic_with(None, 3)._replace(retention_hours=5, is_writable=False)
        else:
            for name, share in first_shares(list("abc"), 6).items():
                self.logs[name].topic = topic_with(client_share(share), 6)
        self.clients: Any = {
            name: SimpleNamespace(topics=log, queues=SimpleNamespace(list=lambda _: [SimpleNamespace(queue_id=3)]))
            for name, log in self.logs.items()
        }

    @property
    def shares(self) -> Mapping[str, known.TopicShare]:
        """The shares of the topic."""
        return {name: log.share for name, log in self.logs.items() if log.share is not None}

    @property
    def open_ids(self) -> Mapping[str, list[int]]:
        """The open queues by shard."""
        return {name: share.open_ids for name, share in self.shares.items()}

    @property
    def write_count(self) -> int:
        """The shares that were written."""
        return sum(log.write_count for log in self.logs.values())


def topic_with(share: TopicShare | None, count: int) -> Topic:
    """The topic with a share and a number of queues."""
    return Topic(TOPIC, count, count, is_readable=True, is_writable=True, is_system=False, share=share)
