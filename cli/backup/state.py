# SPDX-License-Identifier: Apache-2.0
"""The small files of a restored store, as of its end. Pure: the files of the backup in, the files of the store out.

A restore to the backup's end takes the backup's files. An earlier end has what its records say: queue offsets,
writers and positions of groups from the log itself, and topics that were deleted later.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from cli.backup.errors import BackupDamaged, BackupError
from cli.backup.positions import LEFT_PLACE, LogPositions
from libs.formats import store_layout
from libs.formats.config import consumer_offsets_json, topics_json
from libs.formats.config.consumer_offsets_json import ConsumerOffsetsFile
from libs.formats.config.topics_json import TopicConfig, TopicsFile
from libs.formats.errors import FormatError
from libs.formats.names import is_appendable_topic
from libs.formats.state.log_history import TopicBeginsFile
from libs.formats.state.queue_snapshot import QueueSnapshot
from libs.formats.state.replication import SharedStateFile
from libs.formats.state.system_topics import DELIVERY_QUEUE_ID, STATE_QUEUE_ID, STATE_TOPIC, SYSTEM_TOPIC_PREFIX

QUEUE_COUNT_MAX = 65_535


class Saved(NamedTuple):
    """The small files of a backup, decoded."""

    snapshot: QueueSnapshot
    topics: TopicsFile
    begins: dict[str, int]
    positions: ConsumerOffsetsFile | None


def decode(files: dict[str, bytes]) -> Saved:
    """Decode the small files of a backup. Raises BackupDamaged, and BackupError for files of later versions."""
    for name in (store_layout.QUEUE_SNAPSHOT, store_layout.TOPICS, store_layout.TOPIC_BEGINS):
        if name not in files:
            raise BackupDamaged(f"the backup has no file {name}")
    known = {*(store_layout.QUEUE_SNAPSHOT, store_layout.TOPICS, store_layout.TOPIC_BEGINS)}
    if unknown := sorted(files.keys() - known - {store_layout.CONSUMER_OFFSETS}):
        raise BackupError(f"this reput does not know the file {unknown[0]} of the backup")
    name = ""
    try:
        name = store_layout.QUEUE_SNAPSHOT
        snapshot = QueueSnapshot.decode(files[name])
        name = store_layout.TOPICS
        topics = topics_json.loads(files[name].decode())
        name = store_layout.TOPIC_BEGINS
        begins = TopicBeginsFile.decode(files[name]).begins
        name = store_layout.CONSUMER_OFFSETS
        positions = consumer_offsets_json.loads(files[name].decode()) if name in files else None
    except (FormatError, UnicodeDecodeError) as error:
        raise BackupDamaged(f"file {name} of the backup: {error}") from error
    return Saved(snapshot, topics, begins, positions)


def snapshot_at(saved: Saved, found: QueueSnapshot, min_physical_offset: int) -> QueueSnapshot:
    """Return the snapshot of an end: `found` in the kept records, and the rest from the backup's.

    A queue without a kept record goes on with the number that it had at the backup, so no queue offset is given twice.
    """
    if found.end_physical_offset == saved.snapshot.end_physical_offset:
        return saved.snapshot
    counted = {(counter.topic, counter.queue_id) for counter in found.counters}
    others = [one for one in saved.snapshot.counters if (one.topic, one.queue_id) not in counted]
    old = [batch for batch in saved.snapshot.writers if batch.end_physical_offset <= min_physical_offset]
    later = {batch.writer_id for batch in saved.snapshot.writers if batch.end_physical_offset > min_physical_offset}
    sequences = dict(found.writer_sequences)
    idle = [(name, number) for name, number in saved.snapshot.writer_sequences if name not in {*sequences, *later}]
    return msgspec.structs.replace(
        found,
        counters=[*found.counters, *others] if min_physical_offset > 0 else found.counters,
        writers=[*old, *found.writers],
        writer_sequences=[*(idle if min_physical_offset > 0 else []), *found.writer_sequences],
    )


def topics_at(saved: Saved, snapshot: QueueSnapshot, begins: dict[str, int]) -> TopicsFile:
    """Return the topics of an end: those of the backup, and those that only its records name."""
    if snapshot.end_physical_offset == saved.snapshot.end_physical_offset:
        return saved.topics
    counts: dict[str, int] = {}
    for counter in snapshot.counters:
        counts[counter.topic] = max(counts.get(counter.topic, 0), counter.queue_id + 1)
    added = {
        name: TopicConfig(name, min(count, QUEUE_COUNT_MAX), min(count, QUEUE_COUNT_MAX))
        for name, count in counts.items()
        if name not in saved.topics.topics and name not in begins and _is_of_users(name)
    }
    return replace(saved.topics, topics={**saved.topics.topics, **added}) if added else saved.topics


def _is_of_users(name: str) -> bool:
    return is_appendable_topic(name) and not name.startswith(SYSTEM_TOPIC_PREFIX)


def begins_at(saved: Saved, end_physical_offset: int) -> dict[str, int]:
    """Return the begins of topics that were deleted before an end."""
    return {topic: begin for topic, begin in saved.begins.items() if begin <= end_physical_offset}


def positions_at(saved: Saved, snapshot: QueueSnapshot, found: LogPositions) -> ConsumerOffsetsFile:
    """Return the positions of groups, none of them behind the end of its queue.

    At the backup's end they are the backup's, if it has any. At an earlier end they are those that the log has.
    """
    is_whole = snapshot.end_physical_offset == saved.snapshot.end_physical_offset
    positions = saved.positions if is_whole and saved.positions is not None else found.file(saved.positions)
    ends = {(counter.topic, counter.queue_id): counter.next_queue_offset for counter in snapshot.counters}

    def end(group: str, topic: str, queue: int) -> int:
        is_mark = (group, topic, queue) == LEFT_PLACE
        return ends.get((_raw(topic), DELIVERY_QUEUE_ID if is_mark else queue), 0)

    offsets = {
        (topic, group): {queue: min(at, end(group, topic, queue)) for queue, at in queues.items()}
        for (topic, group), queues in positions.offsets.items()
    }
    return replace(positions, offsets=offsets)


def shared_state_at(snapshot: QueueSnapshot) -> SharedStateFile:
    """Return the Indexer's file that says that the positions of all records so far are in the file of positions."""
    ends = {(counter.topic, counter.queue_id): counter.next_queue_offset for counter in snapshot.counters}
    return SharedStateFile(next_queue_offset=ends.get((STATE_TOPIC, STATE_QUEUE_ID), 0))


def _raw(topic: str) -> str:
    """Return a topic as a snapshot names it: its bytes as Latin-1."""
    return topic.encode().decode("latin-1")
