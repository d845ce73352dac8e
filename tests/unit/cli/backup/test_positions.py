# SPDX-License-Identifier: Apache-2.0
"""The positions of groups at the end of a restored log, from the records that the log has."""

from pathlib import Path

import pytest

from cli.backup.errors import BackupDamaged
from cli.backup.positions import LEFT_PLACE, LogPositions, read_positions
from libs.formats.config.consumer_offsets_json import ConsumerOffsetsFile
from libs.formats.records import record
from libs.formats.records.host import Host
from libs.formats.records.state_record import CopyPart, GroupOffsets, StateRecord
from libs.formats.state.system_topics import STATE_TOPIC
from libs.formats.store_layout import file_name

SAVED = ConsumerOffsetsFile({("orders", "nightly"): {0: 90, 1: 80}, ("orders", "new"): {0: 3}})
"""The positions of the backup."""
HOST = Host(b"\x7f\x00\x00\x01", 7101)


def change(number: int, offsets: GroupOffsets, copy: CopyPart | None = None) -> StateRecord:
    """A record."""
    return StateRecord(origin="x", number=number, offsets=offsets, copy=copy)


def positions(
    *records: StateRecord, saved: ConsumerOffsetsFile | None = SAVED
) -> dict[tuple[str, str], dict[int, int]]:
    """The positions that these records have."""
    found = LogPositions()
    for at, state in enumerate(records):
        found.read(state, at)
    return found.file(saved).offsets


COPY = change(1, {"nightly": {"orders": {0: 5, 1: 6}}, "old": {"orders": {0: 1}}}, CopyPart(0, 1))


def test_a_copy_and_changes_are_all() -> None:
    """Behind a whole copy only the records count: a later group is not there, and a deleted group is gone."""
    later = change(2, {"nightly": {"orders": {0: 7}}, "old": {"orders": {0: None}}})
    assert positions(COPY, later) == {("orders", "nightly"): {0: 7, 1: 6}}
    assert positions(COPY, later, saved=None) == {("orders", "nightly"): {0: 7, 1: 6}}


def test_a_change_counts_more_than_a_copy_behind_it() -> None:
    """A copy may have positions that its Indexer had not appended yet; records have precedence over it."""
    assert positions(change(0, {"nightly": {"orders": {0: 4}}}), COPY)["orders", "nightly"] == {0: 4, 1: 6}


def test_without_a_whole_copy_a_group_begins_at_the_first_message() -> None:
    """A position without a record is older than all records that are left, or of a log that had no records."""
    everything = {("orders", "nightly"): {0: 0, 1: 0}, ("orders", "new"): {0: 0}}
    assert positions() == everything
    half = change(1, {"nightly": {"orders": {0: 5}}}, CopyPart(0, 2))
    assert positions(half) == {**everything, ("orders", "nightly"): {0: 5, 1: 0}}
    assert positions(saved=None) == {}


def test_the_mark_of_an_orderly_stop_is_left_out() -> None:
    """The journal decides, not the positions that the Indexer had when Delivery stopped."""
    group, topic, queue = LEFT_PLACE
    whole = change(1, {group: {topic: {queue: 8, 0: 2}}}, CopyPart(0, 1))
    assert positions(whole) == {(topic, group): {0: 2}}


def stored(body: bytes, physical_offset: int) -> bytes:
    """A record of the state topic."""
    return record.encode(
        record.Record(
            topic=STATE_TOPIC, queue_id=0, queue_offset=0, physical_offset=physical_offset, body=body, properties=b"",
            flag=0, sys_flag=0, born_time_ms=1, born_host=HOST, store_time_ms=2, store_host=HOST,
        )
    )  # fmt: skip


def test_records_are_read_up_to_the_end(tmp_path: Path) -> None:
    """A record behind the end is no part of the log, and a record that can't be read ends the restore."""
    first = stored(COPY.encode(), 0)
    second = stored(change(2, {"nightly": {"orders": {0: 7}}}).encode(), len(first))
    third = stored(b"{}", len(first) + len(second))
    (tmp_path / file_name(0)).write_bytes(first + second + third)
    places = [0, len(first), len(first) + len(second)]
    for end, expected in ((len(first), 5), (len(first) + len(second), 7)):
        found = read_positions(tmp_path, 1 << 20, places, end)
        assert found.is_whole
        assert found.file(None).offsets["orders", "nightly"][0] == expected
    with pytest.raises(BackupDamaged, match=f"physical offset {places[-1]}"):
        read_positions(tmp_path, 1 << 20, places, places[-1] + 1)
