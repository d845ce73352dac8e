# SPDX-License-Identifier: Apache-2.0
"""Stores that look odd and are in order: expired heads, pre-blanks, RocketMQ's ways to fill index files."""

import asyncio
import struct
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from libs.formats.config import topics_json
from libs.formats.config.config_json import DataVersion
from libs.formats.indexes import index_file
from libs.formats.indexes.consume_queue import PRE_BLANK
from libs.formats.indexes.index_file import IndexEntry, IndexHeader
from libs.formats.records import properties
from libs.formats.records.record import Record
from libs.formats.state import store_checkpoint
from libs.formats.state.topic_journal import TopicChange
from libs.machine.posix_fs import PosixFs
from libs.machine.testing.manual_clock import ManualClock
from tests.support import reference
from tests.support.commitlog import BORN_HOST, log_on, message, request
from tests.support.damage import Target
from tests.support.made_store import (
    ENTRY_CAPACITY,
    QUEUE_FILE_SIZE,
    SEGMENT_SIZE,
    SLOT_COUNT,
    commit_log_config,
    index,
    verified,
)
from tests.support.records import STORE_TIME_MS, encoded

LONG, INT = struct.Struct(">q"), struct.Struct(">i")


def _codes(store: Path) -> set[str]:
    return {finding.code for finding in verified(store)[1]}


def _expire_first_segment(store: Path) -> Target:
    target = Target(store)
    target.segments[0].unlink()
    target.checkpoint(store_checkpoint.OWN_FIELDS_AT + 32, SEGMENT_SIZE + 1)  # as Reput writes it before a deletion
    return target


def test_units_and_entries_of_deleted_records_are_in_order(store: Path) -> None:
    """The Janitor deletes segments first; queue and index files go when nothing in them is kept."""
    _expire_first_segment(store)
    assert _codes(store) == set()


def test_the_progress_of_delay_levels_is_in_two_files(store: Path) -> None:
    """The group of the delay levels is within its queues, and RocketMQ's file has the same or later positions."""
    offsets = '{"offsetTable":{"SCHEDULE_TOPIC_XXXX@rmq_sys_reput_levels":{%d:1}}}'
    (store / "config" / "consumerOffset.json").write_text(offsets % 7)
    (store / "config" / "delayOffset.json").write_text('{"offsetTable":{8:2}}')
    assert _codes(store) == set()
    (store / "config" / "consumerOffset.json").write_text(offsets % 18)
    assert _codes(store) == {"CONSUMER_OFFSET_OUTSIDE"}


def test_pre_blanks_before_the_first_message_are_in_order(store: Path) -> None:
    """A queue that begins in the middle of a file has fillers before its first unit, as RocketMQ writes them."""
    target = _expire_first_segment(store)
    for number in range(10):
        target.write_unit(number, PRE_BLANK)
    assert _codes(store) == set()
    target.write_unit(11, PRE_BLANK)
    assert _codes(store) == {"QUEUE_PRE_BLANK"}


def test_unit_of_a_deleted_record_may_not_point_into_the_log(store: Path) -> None:
    """Units before a queue's first record lie below the log, and in its order."""
    target = _expire_first_segment(store)
    target.write_unit(3, LONG.pack(target.records[-1].physical_offset))
    assert _codes(store) == {"QUEUE_UNIT_OTHER_RECORD"}
    target.write_unit(3, LONG.pack(1))
    assert _codes(store) == {"QUEUE_UNIT_ORDER"}


def _keys(found: Record) -> list[str]:
    values = [properties.get(found.properties, name) for name in (b"UNIQ_KEY", b"KEYS")]
    unique, keys = (value.decode() if value else "" for value in values)
    return [key for key in (unique, *keys.split(" ")) if key]


def _index_as_rocketmq(target: Target) -> int:
    """Replace the index by the files that RocketMQ's IndexService writes.

    Returns the number of messages with keys in two files.
    """
    for path in target.index_files:
        path.unlink()
    entries = [(found, key) for found in target.records for key in _keys(found)]
    header, split_count = IndexHeader(0, 0, 0, 0, 0, 1), 0
    data = bytearray()
    for number, (found, key) in enumerate(entries):
        if not data or header.next_entry >= ENTRY_CAPACITY:
            _save(target, data, header, number)
            data = bytearray(index_file.file_size_bytes(SLOT_COUNT, ENTRY_CAPACITY))
            header = header._replace(begin_time_ms=header.end_time_ms, used_slot_count=0, next_entry=1)
            split_count += number > 0 and entries[number - 1][0] is found
        header = _put(data, header, found, index_file.key_hash(index_file.key_text(found.topic, key)))
    _save(target, data, header, len(entries))
    return split_count


def _put(data: bytearray, header: IndexHeader, found: Record, key_hash: int) -> IndexHeader:
    slot_at = 40 + 4 * (key_hash % SLOT_COUNT)
    previous = INT.unpack_from(data, slot_at)[0]
    difference = index_file.time_difference_s(found.store_time_ms, header.begin_time_ms)
    entry = IndexEntry(key_hash, found.physical_offset, difference, previous)
    at = index_file.entry_position(header.next_entry, SLOT_COUNT)
    data[at : at + 20] = reference.index_entry(entry)
    INT.pack_into(data, slot_at, header.next_entry)
    if header.next_entry == 1:
        header = header._replace(begin_time_ms=found.store_time_ms, begin_physical_offset=found.physical_offset)
    return header._replace(
        end_time_ms=found.store_time_ms,
        end_physical_offset=found.physical_offset,
        used_slot_count=header.used_slot_count + (previous == 0),
        next_entry=header.next_entry + 1,
    )


def _save(target: Target, data: bytearray, header: IndexHeader, number: int) -> None:
    if data:
        data[:40] = reference.index_header(header)
        (target.root / "index" / f"2023111422132{number:04d}").write_bytes(data)


def test_index_files_as_rocketmq_fills_them_are_sound(store: Path) -> None:
    """Keys of a message in two files are in order.

    First entries that are counted from the file before are notes.
    """
    assert _index_as_rocketmq(Target(store)) > 0
    _, found, report = verified(store)
    assert {finding.code for finding in found} <= {"INDEX_FIRST_TIME", "PROGRESS_FILE_GONE"}
    assert report.counts["INDEX_FIRST_TIME"].notes > 0


def test_queues_of_rocketmq_5_that_are_unknown_are_named(store: Path) -> None:
    """Queues of batches, light queues and other directories are left alone, with a note."""
    target = Target(store)
    target.reseal(172, 39, b"\x80")
    for name in ("batchconsumequeue/T/0", "consumequeue/%LMQ%T.a/0"):
        path = store / name / f"{0:020d}"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"\x01" * QUEUE_FILE_SIZE)
    assert _codes(store) == {"QUEUE_NOT_CHECKED", "NOT_CHECKED"}


def test_topics_that_are_set_apart_are_named(store: Path) -> None:
    """Files in `consumequeue/` of a topic that is set apart are RocketMQ's, with any content, and are not checked.

    The same holds for the topic's consumer offsets.
    """
    target = Target(store)
    topic = target.records[0].topic
    path = store / "config" / "topics.json"
    file = topics_json.loads(path.read_text())
    apart = structs.replace(file.topics[topic], attributes={"cleanup.policy": "COMPACTION"})
    path.write_text(topics_json.dumps(structs.replace(file, topics={**file.topics, topic: apart})))
    for queue in (store / "consumequeue" / topic).iterdir():
        for found in queue.iterdir():
            found.write_bytes(b"\x01" * 77)
    (store / "config" / "consumerOffset.json").write_text(f'{{"offsetTable":{{"{topic}@g":{{0:{10**9}}}}}}}')
    assert _codes(store) == {"QUEUE_NOT_CHECKED"}


def test_a_topic_of_the_journal_is_known(store: Path) -> None:
    """A topic that topics.json lacks, and the journal has, is among the topics; a finished journal is no finding."""
    path = store / "config" / "topics.json"
    file = topics_json.loads(path.read_text())
    topic = Target(store).records[0].topic
    older = structs.replace(file, topics={name: one for name, one in file.topics.items() if name != topic})
    path.write_text(topics_json.dumps(older))
    assert "TOPIC_UNKNOWN" in _codes(store)
    change = TopicChange(file.data_version, DataVersion(99, 1), {topic: file.topics[topic]})
    (store / "reput" / "topic_journal").write_bytes(change.encode())
    assert _codes(store) == set()


def test_what_rocketmq_is_owed_is_no_unclean_stop(store: Path) -> None:
    """`abort` stays after clean stops if RocketMQ still has to recover files or to add units to queues.

    After a kill it has a process id, too.
    """
    for words in ("owed", "behind", "owed behind"):
        (store / "abort").write_text(f"{words}\n")
        assert _codes(store) == set()
    for word in ("owed", "follows", "follows owed", "behind"):
        (store / "abort").write_text(f"4711 {word}\n")
        assert _codes(store) == {"STORE_NOT_CLEAN"}


def test_what_the_next_start_drops_after_an_unclean_stop_is_a_note(store: Path) -> None:
    """Surplus units and doubtful index files are no faults of a store that was killed."""
    target = Target(store)
    (store / "abort").write_text("1")
    target.edit_progress(lambda fields: fields.update(is_clean=False, index_finished_file=target.index_files[1].name))
    target.write_unit(target.unit_count(), LONG.pack(1 << 40) + INT.pack(100) + LONG.pack(0))
    target.write_entry(-1, 3, bytes(20))
    _, found, report = verified(store)
    assert report.fault_count == 0, found
    assert {"QUEUE_UNIT_PAST_END", "INDEX_ENTRY_OTHER"} <= {finding.code for finding in found}


def test_file_of_wrong_entries_is_given_up(store: Path) -> None:
    """A full-size index file of noise costs a bounded number of findings."""
    target = Target(store)
    size = index_file.file_size_bytes(8_000, 32_000)
    for path in target.index_files:
        path.unlink()
    header = reference.index_header(IndexHeader(1, 2, 0, 9, 5, 30_000))
    (store / "index" / "20231114221320000").write_bytes(header + b"\x7f" * (size - len(header)))
    _, found, report = verified(store, limit=5)
    assert "INDEX_FILE_GIVEN_UP" in report.counts
    assert len([finding for finding in found if finding.severity == "fault"]) == 5


def test_a_clock_that_was_set_back_is_in_order(tmp_path: Path) -> None:
    """RocketMQ's store times follow the clock: its log opens, so it is no damage."""
    data = b""
    for number, step_ms in enumerate((0, 5_000, 0, 6_000)):
        data += encoded(len(data), queue_id=0, queue_offset=number, store_time_ms=STORE_TIME_MS + step_ms)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(data.ljust(SEGMENT_SIZE, b"\0"))
    findings = verified(tmp_path)[1]
    assert "LOG_STORE_TIME" in {finding.code for finding in findings}
    assert {finding.code for finding in findings if finding.physical_offset and finding.severity == "fault"} == set()


async def _log_that_gets_the_crc_property(data_dir: Path) -> None:
    for has_crc_property in (False, True):
        config = replace(commit_log_config(data_dir), crc_property=has_crc_property)
        async with log_on(PosixFs(), config, ManualClock()) as log:
            for number in range(3):
                await log.pipeline.append(request(message(b"body %d" % number, "orders", queue_id=0)), BORN_HOST)
    await index(data_dir)


def test_messages_without_properties_before_the_crc_property_was_on_are_in_order(tmp_path: Path) -> None:
    """The last bytes of such a message are the size of its properties, which is 0.

    They are not the rest of a CRC property.
    """
    asyncio.run(_log_that_gets_the_crc_property(tmp_path))
    assert _codes(tmp_path) == set()


def test_a_place_at_the_end_of_a_removed_queue_is_in_order(store: Path) -> None:
    """The offset of a consumer may be at the end of a removed queue without records in the log.

    The queue continues there when its topic is made again.
    """
    Target(store).write_log_history(ends=[["gone", 0, 5, 0]])
    offsets = store / "config" / "consumerOffset.json"
    offsets.write_text('{"offsetTable":{"gone@readers":{0:5}}}')
    assert "CONSUMER_OFFSET_OUTSIDE" not in _codes(store)
    offsets.write_text('{"offsetTable":{"gone@readers":{0:6}}}')
    assert "CONSUMER_OFFSET_OUTSIDE" in _codes(store)
