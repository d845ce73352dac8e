# SPDX-License-Identifier: Apache-2.0
"""The changes of topics that `config/topics.json` may lack yet, in `reput/topic_journal`.

Each change is an envelope of its own, one behind the other, so a change is added by an append. A change names the
version of the topics before it and after it, so a reader knows which changes a `topics.json` has. Only the last append
may be unfinished: the rest of such an append is no damage, but a wrong byte before another envelope is.
Spec: docs/formats/reput_files.md section 8.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from libs.formats.config import config_json, topics_json
from libs.formats.config.config_json import DataVersion
from libs.formats.config.topics_json import TopicConfig, TopicsFile
from libs.formats.errors import BadField, FormatError
from libs.formats.state import checksummed

KIND = "topic-journal"
VERSION = 1

_NAME = KIND.encode().ljust(checksummed.KIND_SIZE_BYTES_MAX, b"\0")
"""It is in each header, and in no payload, because JSON has no zero bytes."""
_NAME_AT = 8


class TopicChange(Struct, frozen=True):
    """A change of topics: topics that are new or changed, then names that are removed."""

    before: DataVersion
    after: DataVersion
    put: dict[str, TopicConfig] = field(default_factory=dict)
    removed: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the change as a part of the journal."""
        put = ",".join(topic.entry for topic in self.put.values())
        before, after, removed = map(_compact, (_numbers(self.before), _numbers(self.after), self.removed))
        text = f'{{"before":{before},"after":{after},"put":{{{put}}},"removed":{removed}}}'
        return checksummed.wrap(KIND, text.encode(), version=VERSION)


class TopicJournal(NamedTuple):
    """The whole changes of a journal, each of which begins with the version at which the change before it ends."""

    changes: list[TopicChange]
    end: int
    """Position behind the last whole change. Bytes behind it are the begin of an append that was not finished."""


def decode(data: bytes) -> TopicJournal:
    """Return the whole changes of a journal.

    Raises NewerVersion, and FormatError's subclasses for damage in front of another change, and for a change that does
    not continue the change before it.
    """
    changes: list[TopicChange] = []
    position = 0
    while position < len(data):
        try:
            payload = _payload_at(data, position)
        except FormatError as error:
            if data.find(_NAME, position + _NAME_AT + 1) < 0:
                break
            raise type(error)(position=position + error.position, reason=error.reason, field=error.field) from None
        change = _change_of(payload, position)
        if changes and change.before != changes[-1].after:
            reason = f"a change of version {change.before.counter} behind version {changes[-1].after.counter}"
            raise BadField(position=position, reason=reason, field="before")
        changes.append(change)
        position += checksummed.HEADER_SIZE_BYTES + len(payload)
    return TopicJournal(changes, position)


def decode_whole(data: bytes) -> list[TopicChange]:
    """Return the changes of a journal that ends with a whole change, at least one.

    Raises as `decode`, and BadField for other bytes.
    """
    changes, end = decode(data)
    if not changes or end < len(data):
        raise BadField(position=end, reason="the last change is not whole", field="content")
    return changes


def merged(changes: Sequence[TopicChange]) -> TopicChange:
    """Return a single change that does the same as these, which continue each other. There is at least one."""
    put: dict[str, TopicConfig] = {}
    removed: dict[str, None] = {}
    for change in changes:
        for name in change.put:
            removed.pop(name, None)
        put.update(change.put)
        for name in change.removed:
            put.pop(name, None)
            removed[name] = None
    return TopicChange(changes[0].before, changes[-1].after, put, tuple(removed))


def missing(file: TopicsFile, changes: list[TopicChange]) -> list[TopicChange]:
    """Return the changes of a journal that the content of `topics.json` lacks.

    A file of a version that the journal does not know was written by another program since: RocketMQ after an unclean
    stop, or an operator from a backup. Then the file decides, and only topics that it lacks are added.
    """
    if not changes:
        return []
    versions = [_identity(change.before) for change in changes] + [_identity(changes[-1].after)]
    if _identity(file.data_version) in versions:
        return changes[versions.index(_identity(file.data_version)) :]
    put: dict[str, TopicConfig] = {}
    for change in changes:
        put = {name: topic for name, topic in (put | change.put).items() if name not in change.removed}
    lacking = {name: topic for name, topic in put.items() if name not in file.topics}
    if not lacking:
        return []
    before = file.data_version
    after = DataVersion(before.counter + 1, changes[-1].after.timestamp_ms, before.state_version)
    return [TopicChange(before, after, lacking)]


def applied(file: TopicsFile, changes: list[TopicChange]) -> TopicsFile:
    """Return the topics after these changes, which begin with the version of the file."""
    topics, version = dict(file.topics), file.data_version
    for change in changes:
        topics.update(change.put)
        for name in change.removed:
            topics.pop(name, None)
        version = change.after
    return TopicsFile(topics, version)


def _payload_at(data: bytes, position: int) -> bytes:
    """Return the payload of the envelope at a position. Raises NewerVersion and FormatError's subclasses."""
    size = 0
    if position + checksummed.HEADER_SIZE_BYTES <= len(data):
        size = max(0, checksummed.COVERED.unpack_from(data, position)[3])
    end = position + checksummed.HEADER_SIZE_BYTES + size
    return checksummed.unwrap(KIND, data[position:end], version=VERSION)


def _change_of(payload: bytes, position: int) -> TopicChange:
    try:
        root = config_json.parse_object(payload.decode())
        return TopicChange(
            before=_version(root.get("before"), "before"),
            after=_version(root.get("after"), "after"),
            put=topics_json.topics_of(config_json.mapping(root.get("put"), "put")),
            removed=_names(root.get("removed")),
        )
    except UnicodeDecodeError as error:
        raise BadField(position=position, reason=str(error), field="content") from None
    except FormatError as error:
        raise type(error)(position=position, reason=error.reason, field=error.field) from None


def _version(value: Any, name: str) -> DataVersion:
    if not isinstance(value, list) or len(value) != 3:
        raise BadField(position=0, reason=f"{name} is no list of three numbers", field=name)
    return DataVersion(*(config_json.integer(number, name) for number in value))


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BadField(position=0, reason="removed is no list of names", field="removed")
    return tuple(value)


def _numbers(version: DataVersion) -> list[int]:
    return [version.counter, version.timestamp_ms, version.state_version]


def _identity(version: DataVersion) -> tuple[int, int]:
    """Return the part of a version that RocketMQ 4.9 keeps, too."""
    return version.counter, version.timestamp_ms


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
