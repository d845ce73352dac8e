# SPDX-License-Identifier: Apache-2.0
"""topics.json: topics with their queues and permissions. Spec: docs/formats/config_files.md section 2."""

from functools import cached_property
from typing import Any

from msgspec import Struct, field

from libs.formats.config import config_json, topic_share
from libs.formats.config.config_json import DataVersion
from libs.formats.config.topic_share import SHARE, TopicShare
from libs.formats.errors import BadField
from libs.formats.limits import INT32_MAX, INT64_MAX, QUEUE_COUNT_MAX

PERMISSION_READ = 4
PERMISSION_WRITE = 2
PERMISSION_MASK = 7
RETENTION_HOURS, RETENTION_BYTES = "reput.retention.hours", "reput.retention.bytes"
"""Attributes with a topic's rule of retention. RocketMQ keeps attributes that it does not know."""
RETENTION_HOURS_MAX = 24 * 365 * 100
FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class TopicConfig(Struct, frozen=True, dict=True):
    """A topic. Queue counts are 0 to 65535. `permission` is a sum of the PERMISSION bits."""

    name: str
    read_queue_count: int
    write_queue_count: int
    permission: int = PERMISSION_READ | PERMISSION_WRITE
    is_ordered: bool = False
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    attributes: dict[str, str] = field(default_factory=dict)

    @cached_property
    def entry(self) -> str:
        """The topic's text in the file. It is made once, so that a file with a further topic costs little more."""
        return config_json.entry(self.name, _topic_json(self), depth=2)

    @property
    def is_readable(self) -> bool:
        """Whether messages may be read."""
        return bool(self.permission & PERMISSION_READ)

    @property
    def is_writable(self) -> bool:
        """Whether messages may be appended."""
        return bool(self.permission & PERMISSION_WRITE)

    @property
    def retention_hours(self) -> int:
        """Age in hours at which messages expire, 0 without a rule or with a value that is none."""
        return _limit(self.attributes.get(RETENTION_HOURS), RETENTION_HOURS_MAX)

    @property
    def retention_bytes(self) -> int:
        """Bytes of records above which the oldest messages expire, 0 without a rule or with a value that is none."""
        return _limit(self.attributes.get(RETENTION_BYTES), INT64_MAX)

    @cached_property
    def share(self) -> TopicShare | None:
        """The queues that this log has, if the topic lies on several logs. Raises BadField for a text that is none."""
        text = self.attributes.get(SHARE)
        return None if text is None else topic_share.loads(text)

    def shared(self, share: TopicShare) -> dict[str, str]:
        """Return the attributes with another share."""
        return self.attributes | {SHARE: topic_share.dumps(share)}

    def retained(self, *, hours: int | None, size_bytes: int | None) -> dict[str, str]:
        """Return the attributes with another rule of retention. None leaves a limit unchanged, 0 removes it."""
        attributes = dict(self.attributes)
        for name, value in ((RETENTION_HOURS, hours), (RETENTION_BYTES, size_bytes)):
            if value:
                attributes[name] = str(value)
            elif value is not None:
                attributes.pop(name, None)
        return attributes


def _limit(text: str | None, most: int) -> int:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return min(int(text), most) if text is not None and is_number else 0


class TopicsFile(Struct, frozen=True):
    """The whole file: topics by name, in the file's order."""

    topics: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


def loads(text: str) -> TopicsFile:
    """Return the file's content. Raises BadField or BadLength.

    Unknown fields are ignored. Missing fields get RocketMQ's defaults.
    """
    root = config_json.parse_object(text)
    table = config_json.mapping(root.get("topicConfigTable", {}), "topicConfigTable")
    return TopicsFile(topics_of(table), DataVersion.from_json(root.get("dataVersion", {})))


def dumps(file: TopicsFile) -> str:
    """Return the file in the form of 5.3: fields of objects in alphabetical order, topics in the mapping's order."""
    table = config_json.block([topic.entry for topic in file.topics.values()], depth=1)
    version = config_json.entry("dataVersion", file.data_version.to_json(), depth=1)
    return config_json.block([version, f'"topicConfigTable":{table}'], depth=0)


def topics_of(table: dict[str, Any]) -> dict[str, TopicConfig]:
    """Return the topics of a parsed `topicConfigTable`. Raises BadField."""
    return {name: _topic(name, config_json.mapping(value, name)) for name, value in table.items()}


def _topic(name: str, fields: dict[str, Any]) -> TopicConfig:
    def number(key: str, default: int, most: int) -> int:
        return config_json.integer(fields.get(key, default), key, least=0, most=most)

    filter_type = fields.get("topicFilterType", "SINGLE_TAG")
    if filter_type not in FILTER_TYPES:
        raise BadField(position=0, reason=f"topicFilterType of {name[:80]!r}", field="topicFilterType")
    if fields.get("topicName", name) != name:
        raise BadField(position=0, reason=f"topicName of {name[:80]!r} is another", field="topicName")
    is_ordered = fields.get("order", False)
    if not isinstance(is_ordered, bool):
        raise BadField(position=0, reason=f"order of {name[:80]!r}", field="order")
    attributes = config_json.mapping(fields.get("attributes") or {}, "attributes")
    return TopicConfig(
        name=name,
        read_queue_count=number("readQueueNums", 16, QUEUE_COUNT_MAX),
        write_queue_count=number("writeQueueNums", 16, QUEUE_COUNT_MAX),
        permission=number("perm", PERMISSION_READ | PERMISSION_WRITE, PERMISSION_MASK),
        is_ordered=is_ordered,
        filter_type=filter_type,
        sys_flag=number("topicSysFlag", 0, INT32_MAX),
        attributes={str(key): str(value) for key, value in attributes.items()},
    )


def _topic_json(topic: TopicConfig) -> dict[str, object]:
    return {
        "attributes": topic.attributes,
        "order": topic.is_ordered,
        "perm": topic.permission,
        "readQueueNums": topic.read_queue_count,
        "topicFilterType": topic.filter_type,
        "topicName": topic.name,
        "topicSysFlag": topic.sys_flag,
        "writeQueueNums": topic.write_queue_count,
    }
