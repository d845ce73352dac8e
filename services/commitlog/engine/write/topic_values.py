# SPDX-License-Identifier: Apache-2.0
"""Values of a topic that callers set, checked: its rule of retention, and its share. No I/O."""

from msgspec.structs import replace

from libs.formats.config.topic_share import TopicShare
from libs.formats.config.topics_json import RETENTION_HOURS_MAX, TopicConfig
from libs.requests.checks import check_range
from libs.requests.errors import BadArgument
from services.commitlog.errors import ShareOutdated


def with_retention_of(topic: TopicConfig, hours: int | None, size_bytes: int | None) -> TopicConfig:
    """Return a topic with another rule of retention. None leaves a limit unchanged. Raises BadArgument."""
    check_range(hours or 0, "retention_hours", most=RETENTION_HOURS_MAX)
    check_range(size_bytes or 0, "retention_bytes")
    return replace(topic, attributes=topic.retained(hours=hours, size_bytes=size_bytes))


def with_share(topic: TopicConfig, share: TopicShare | None) -> TopicConfig:
    """Return a topic with another share, or with its own for None. Raises BadArgument and ShareOutdated.

    The topic's queue count is checked against the share in both cases.
    """
    before = topic.share
    given = before if share is None else share
    if given is not None and (fault := given.fault(write_queue_count=topic.write_queue_count)):
        raise BadArgument(fault, field="write_queue_count" if share is None else "share")
    if given is None or given == before:
        return topic
    if before is not None and given.version <= before.version:
        raise ShareOutdated(topic.name, given=given.version, version=before.version)
    if fault := given.fault_after(before):
        raise BadArgument(fault, field="share")
    return replace(topic, attributes=topic.shared(given))
