# SPDX-License-Identifier: Apache-2.0
"""All kinds of damage of a store's log and small files, with the codes that name them."""

import os
import shutil
import struct
from pathlib import Path

from libs.formats.config.config_json import DataVersion
from libs.formats.config.topics_json import TopicConfig
from libs.formats.epoch import Epoch
from libs.formats.state import epoch_file
from libs.formats.state.topic_journal import TopicChange
from libs.log.state import directories as log_directories
from libs.machine.posix_fs import PosixFs
from tests.support.damage import Case, Target
from tests.support.made_store import SEGMENT_SIZE

BARE = 172
"""A record in the middle of a segment, without keys, tag, delay or IPv6 host."""
KEYED = 173
"""The next record, with keys."""
UNCHECKED = frozenset({"QUEUE_UNIT_UNCHECKED", "INDEX_ENTRY_UNCHECKED"})
LONG = struct.Struct(">q")
HOUR_MS = 3_600_000


def _name_directories(t: Target, *directories: Path) -> None:
    log_directories.save(PosixFs(), t.root, [t.root / "commitlog", *directories])


def _copy_segment(t: Target) -> None:
    other = t.root.parent / "other"
    other.mkdir()
    shutil.copy(t.segments[1], other)
    _name_directories(t, other)


def _damage_directories(t: Target) -> None:
    _name_directories(t, t.root / "more")
    (t.root / "more").mkdir()
    t.flip(t.root / "reput" / "log_directories", 40)


def _flip_log_history(t: Target) -> None:
    t.write_log_history(history_id="one")
    t.flip(t.root / "reput" / "log_history", 40)


def _store_time(t: Target, number: int, change_ms: int) -> bytes:
    return LONG.pack(t.records[number].store_time_ms + change_ms)


def _blank_at(t: Target) -> int:
    last = max(found.physical_offset for found in t.records if found.physical_offset < SEGMENT_SIZE)
    return next(f.physical_offset + f.size_bytes for f in t.records if f.physical_offset == last)


def _zero_to_segment_end(t: Target) -> None:
    start = t.records[KEYED].physical_offset
    t.write_log(start, bytes(SEGMENT_SIZE - start % SEGMENT_SIZE))


def _lose_end(t: Target) -> None:
    for number in (-2, -1):
        t.write_record(number, 0, bytes(t.records[number].size_bytes))


def _queue_offset(t: Target, number: int, change: int) -> bytes:
    return LONG.pack(t.records[number].queue_offset + change)


def _topic(t: Target, number: int) -> int:
    """The position of the topic's second character in a record."""
    return t.raw(number).index(t.records[number].topic.encode()) + 1


def _unclean(t: Target) -> None:
    (t.root / "abort").write_text("123")


def _torn(t: Target) -> None:
    t.write_log(t.end_physical_offset, bytes(t.raw(-1)[:60]))


def _torn_and_unclean(t: Target) -> None:
    _torn(t)
    _unclean(t)


def _directory_for_snapshot(t: Target) -> None:
    (t.root / "reput" / "queue_offsets").unlink()
    (t.root / "reput" / "queue_offsets").mkdir()


def _snapshot_end(t: Target, change: int) -> None:
    t.edit_snapshot(lambda fields: fields.update(end_physical_offset=t.end_physical_offset + change))


def _edit_counter(fields: dict[str, object]) -> None:
    fields["counters"][0][2] += 1  # type: ignore[index]


def _edit_times(fields: dict[str, object]) -> None:
    fields["segment_times"][1][1] += 1  # type: ignore[index]


def _lose_topic(t: Target) -> None:
    path = t.root / "config" / "topics.json"
    path.write_text(path.read_text().replace("orders", "0rders"))


TOPIC_CHANGE = TopicChange(DataVersion(1, 2), DataVersion(2, 3), {"more": TopicConfig("more", 1, 1)}).encode()


def _write_topic_journal(t: Target, content: bytes) -> None:
    (t.root / "reput" / "topic_journal").write_bytes(content)


LOG = [
    Case("LOG_FILE_NAME", lambda t: (t.root / "commitlog" / "segment").write_bytes(b"x")),
    Case("LOG_FILE_NAME", lambda t: (t.root / "commitlog" / f"{10 * SEGMENT_SIZE:020d}").mkdir(), "a directory"),
    Case("LOG_FILE_SIZE", lambda t: os.truncate(t.segments[2], 1000), others=UNCHECKED | {"LOG_RECORD_LENGTH"}),
    Case("LOG_START_MISSING", lambda t: t.segments[0].unlink()),
    Case("LOG_FILE_TWICE", _copy_segment),
    Case("LOG_DIRECTORY_MISSING", lambda t: _name_directories(t, t.root / "more")),
    Case("LOG_DIRECTORIES_DAMAGED", _damage_directories),
    Case("LOG_FILE_MISSING", lambda t: t.segments[2].unlink(), others=UNCHECKED),
    Case("LOG_RECORD_MAGIC", lambda t: t.write_record(KEYED, 4, b"\xdb"), others=UNCHECKED),
    Case("LOG_RECORD_LENGTH", lambda t: t.write_record(KEYED, 0, b"\x00\x00\x40"), others=UNCHECKED),
    Case("LOG_RECORD_LENGTH", lambda t: t.write_record(KEYED, 39, b"\x10"), "IPv6 bit", others=UNCHECKED),
    Case("LOG_RECORD_OFFSET", lambda t: t.write_record(KEYED, 35, b"\x01"), others=UNCHECKED),
    Case("LOG_BODY_CRC", lambda t: t.write_record(KEYED, 90, b"\xff")),
    Case("LOG_BODY_CRC", lambda t: t.write_record(-1, 90, b"\xff"), "last record"),
    Case("LOG_PROPERTY_CRC", lambda t: t.write_record(KEYED, -22, b"\xff"), others=UNCHECKED),
    Case("LOG_PROPERTY_CRC", lambda t: t.write_record(KEYED, 20, b"\x01"), "queue offset", others=UNCHECKED),
    Case("LOG_PROPERTY_CRC_MISSING", lambda t: t.write_record(KEYED, -20, bytes(20)), "zeros"),
    Case("LOG_BLANK_SIZE", lambda t: t.write_log(_blank_at(t), struct.pack(">i", 8))),
    Case("LOG_HOLE", lambda t: t.write_record(KEYED, 0, bytes(t.records[KEYED].size_bytes)), others=UNCHECKED),
    Case("LOG_HOLE", _zero_to_segment_end, "to the end of the segment", UNCHECKED),
    Case("LOG_HOST_PORT", lambda t: t.reseal(BARE, 52, b"\x01")),
    Case("LOG_HOST_PORT", lambda t: t.reseal(BARE, 69, b"\x01"), "of the store"),
    Case("LOG_STORE_TIME", lambda t: t.reseal(BARE, 56, _store_time(t, BARE, -1_200)), is_note=True),
    Case(
        "LOG_STORE_TIME",
        lambda t: t.reseal(KEYED, 56, _store_time(t, KEYED, -HOUR_MS)),
        "of a record that was synced",
        others=frozenset({"INDEX_ENTRY_TIME"}),
        is_note=True,
    ),
    Case(
        "LOG_STALE_RECORD",
        lambda t: t.reseal(BARE, 56, _store_time(t, BARE, -HOUR_MS), t.end_physical_offset),
        "behind the end",
    ),
    Case("LOG_QUEUE_NAME", lambda t: t.reseal(BARE, _topic(t, BARE), b"/"), others=frozenset({"LOG_QUEUE_OFFSET_GAP"})),
    Case("LOG_QUEUE_OFFSET", lambda t: t.reseal(BARE, 20, b"\xff"), others=frozenset({"LOG_QUEUE_OFFSET_GAP"})),
    Case(
        "LOG_QUEUE_OFFSET_GAP",
        lambda t: t.reseal(BARE, 20, _queue_offset(t, BARE, 3)),
        others=frozenset({"LOG_QUEUE_OFFSET_REPEAT", "QUEUE_UNIT_OTHER_RECORD"}),
    ),
    Case(
        "LOG_QUEUE_OFFSET_REPEAT",
        lambda t: t.reseal(BARE, 20, _queue_offset(t, BARE, -1)),
        others=frozenset({"LOG_QUEUE_OFFSET_GAP", "QUEUE_UNIT_OTHER_RECORD"}),
    ),
    Case("LOG_TORN_TAIL", _torn, "after a clean stop"),
    Case("LOG_TORN_TAIL", _torn_and_unclean, "after a kill", frozenset({"STORE_NOT_CLEAN"}), is_note=True),
    Case("LOG_RUBBISH", lambda t: t.write_log(t.end_physical_offset + 500, b"x")),
]
FILES = [
    Case("ABORT_CONTENT", lambda t: (t.root / "abort").write_text("no number"), others=frozenset({"STORE_NOT_CLEAN"})),
    Case("STORE_NOT_CLEAN", _unclean, is_note=True),
    Case("LOCK_CONTENT", lambda t: (t.root / "lock").write_text("l0ck")),
    Case("CHECKPOINT_DAMAGED", lambda t: os.truncate(t.root / "checkpoint", 4000), "short"),
    Case("CHECKPOINT_DAMAGED", lambda t: t.write(t.root / "checkpoint", 3000, b"x"), "rubbish"),
    Case("CHECKPOINT_AHEAD", lambda t: t.checkpoint(0, t.records[-1].store_time_ms + 1), "log"),
    Case("CHECKPOINT_AHEAD", lambda t: t.checkpoint(8, t.records[-1].store_time_ms + 1), "queues"),
    Case("CHECKPOINT_AHEAD", lambda t: t.checkpoint(32, t.end_physical_offset + 1), "confirmed"),
    Case("CHECKPOINT_AHEAD", lambda t: t.checkpoint(2048, t.end_physical_offset + 1), "synced"),
    Case("TOPICS_DAMAGED", lambda t: t.write(t.root / "config" / "topics.json", 3, b"\xff{")),
    Case("TOPIC_JOURNAL_DAMAGED", lambda t: _write_topic_journal(t, TOPIC_CHANGE[:-9] + b"x" * 9 + TOPIC_CHANGE)),
    Case("TOPIC_JOURNAL_TORN", lambda t: _write_topic_journal(t, TOPIC_CHANGE[:-9]), is_note=True),
    Case("TOPIC_UNKNOWN", _lose_topic, is_note=True),
    Case("CONSUMER_OFFSETS_DAMAGED", lambda t: (t.root / "config" / "consumerOffset.json").write_text("[1]")),
    Case(
        "CONSUMER_OFFSET_OUTSIDE",
        lambda t: (t.root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@g":{1:9999}}}'),
        is_note=True,
    ),
    Case(
        "CONSUMER_OFFSET_OUTSIDE",
        lambda t: (t.root / "config" / "consumerOffset.json").write_text(
            '{"offsetTable":{"rmq_sys_reput_delivery@rmq_sys_reput_delivery":{1:9999}}}'
        ),
        "journal left at a record that it does not have",
        is_note=True,
    ),
    Case("GROUP_CONFIGS_DAMAGED", lambda t: (t.root / "config" / "subscriptionGroup.json").write_text("[1]")),
    Case("DELAY_OFFSETS_DAMAGED", lambda t: (t.root / "config" / "delayOffset.json").write_text("[1]")),
    Case(
        "DELAY_OFFSET_OUTSIDE",
        lambda t: (t.root / "config" / "delayOffset.json").write_text('{"offsetTable":{3:9999}}'),
        is_note=True,
    ),
    Case("HISTORY_DAMAGED", lambda t: t.flip(t.root / "reput" / "history", 40)),
    Case("REPLICA_DAMAGED", lambda t: (t.root / "reput" / "replica").write_bytes(b"x")),
    Case("IN_SYNC_DAMAGED", lambda t: (t.root / "reput" / "in_sync_set").write_bytes(b"x")),
    Case("TOPIC_BEGINS_DAMAGED", lambda t: (t.root / "reput" / "topic_begins").write_bytes(b"x")),
    Case("EPOCHS_DAMAGED", lambda t: t.flip(t.root / "epochFileCheckpoint", 4)),
    Case(
        "EPOCH_BEYOND_LOG",
        lambda t: (t.root / "epochFileCheckpoint").write_bytes(epoch_file.encode([Epoch(1, 0), Epoch(2, 1 << 40)])),
    ),
    Case("SNAPSHOT_DAMAGED", lambda t: t.flip(t.root / "reput" / "queue_offsets", 60)),
    Case("SNAPSHOT_BEYOND_LOG", lambda t: _snapshot_end(t, 4096)),
    Case(
        "SNAPSHOT_BEYOND_LOG",
        _lose_end,
        "records lost",
        frozenset({"CHECKPOINT_AHEAD", "PROGRESS_BEYOND_LOG", "QUEUE_UNIT_PAST_END", "INDEX_ENTRY_PAST_END"}),
    ),
    Case("SNAPSHOT_COUNTER", lambda t: t.edit_snapshot(_edit_counter)),
    Case("SNAPSHOT_TIMES", lambda t: t.edit_snapshot(_edit_times)),
    Case("LOG_HISTORY_DAMAGED", _flip_log_history),
    Case("SHARED_STATE_DAMAGED", lambda t: (t.root / "reput" / "shared_state").write_bytes(b"x")),
    Case("UNSENT_OFFSETS_DAMAGED", lambda t: (t.root / "reput" / "unsent_offsets").write_bytes(b"x")),
    Case("PROGRESS_DAMAGED", lambda t: t.flip(t.root / "reput" / "index_progress", 60)),
    Case(
        "PROGRESS_BEYOND_LOG",
        lambda t: t.edit_progress(lambda fields: fields.update(queue_physical_offset=1 << 40)),
    ),
    Case("PROGRESS_EPOCH", lambda t: t.edit_progress(lambda fields: fields.update(epoch=99))),
    Case(
        "PROGRESS_FILE_GONE",
        lambda t: t.edit_progress(lambda fields: fields.update(index_finished_file="20200101000000000")),
    ),
    Case("TEMPORARY_FILE", lambda t: (t.root / "commitlog" / "x.tmp").write_bytes(b"x"), is_note=True),
    Case("FILE_UNREADABLE", _directory_for_snapshot),
]
