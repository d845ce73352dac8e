# SPDX-License-Identifier: Apache-2.0
"""Inspection of segments and small files: sound files print, and every flipped byte of a record is named."""

import json
from pathlib import Path

import pytest

from cli.inspect.inspection import Finding, Inspection, Item, UnknownKind, Window
from cli.inspect.small import inspect_small
from cli.inspect.store import detect_kind, inspect_file
from libs.formats.config.config_json import DataVersion
from libs.formats.config.topics_json import TopicConfig
from libs.formats.epoch import Epoch
from libs.formats.state import checksummed, epoch_file, store_checkpoint
from libs.formats.state.store_checkpoint import StoreCheckpoint
from libs.formats.state.topic_journal import TopicChange
from tests.support.frame_cases import flipped
from tests.support.golden import golden
from tests.support.inspections import BASE, TAIL_SIZE_BYTES, findings_in, findings_of, good_segment, segment_path
from tests.support.records import encoded, run_of


@pytest.mark.parametrize("end", ["blank", "unwritten", "exact"])
@pytest.mark.parametrize("crc_property", [True, False])
def test_sound_segment_prints_every_record(tmp_path: Path, end: str, crc_property: bool) -> None:
    """A good segment with any of the ends has no findings, and shows each record with its fields."""
    data, starts = good_segment(end=end, crc_property=crc_property)
    inspection = inspect_file(segment_path(tmp_path, data))
    items = [step for step in inspection if isinstance(step, Item)]
    assert inspection.kind == "segment"
    assert inspection.is_sound
    records = [item for item in items if item.kind == "record"]
    assert [item.position for item in records] == starts
    assert [item.fields["topic"] for item in records] == ["first", "second", "t" * 130, "fourth", "fifth"]
    assert [item.fields["physical_offset"] for item in records] == [BASE + start for start in starts]
    assert records[3].fields["born_host"] == "[2001:db8::a]:50123"
    assert inspection.summary["record_count"] == 5
    assert len([item for item in items if item.kind == "blank"]) == (end == "blank")


def test_damage_of_many_bytes_is_one_finding_and_the_walk_goes_on(tmp_path: Path) -> None:
    """A wholly overwritten record is a single finding, and the records behind it are still read."""
    data, starts = good_segment(end="blank")
    broken = data[: starts[1]] + b"\xee" * (starts[2] - starts[1]) + data[starts[2] :]
    inspection = inspect_file(segment_path(tmp_path, broken))
    found = findings_in(inspection)
    assert [finding.item for finding in found] == [f"record 1 at physical offset {BASE + starts[1]}"]
    assert inspection.summary["record_count"] == 5


def test_two_neighbouring_damaged_records_are_two_findings(tmp_path: Path) -> None:
    """A flip in the total size of a record and a flip in the next record are both found."""
    data, starts = good_segment(end="blank")
    broken = flipped(flipped(data, starts[1] + 3, 0x02), starts[2] + 5, 0x10)
    found = findings_of(segment_path(tmp_path, broken))
    assert [(finding.item.split(" at ")[0], finding.field) for finding in found] == [
        ("record 1", "total size"),
        ("record 2", "magic"),
    ]


def test_blank_damage_is_named(tmp_path: Path) -> None:
    """A flipped byte in the blank's size or magic names the blank's field."""
    data, _ = good_segment(end="blank")
    blank = len(data) - TAIL_SIZE_BYTES
    for position, field in ((blank + 1, "total size"), (blank + 6, "magic")):
        found = findings_of(segment_path(tmp_path, flipped(data, position, 0x40)))
        assert [finding.field for finding in found] == [field]


def test_torn_tail_and_dirty_tail_are_found(tmp_path: Path) -> None:
    """A record cut by the end of the file, and bytes in unwritten space, are findings at their place."""
    data, starts = good_segment(end="exact")
    found = findings_of(segment_path(tmp_path, data[:-5]))
    assert [finding.item for finding in found] == [f"record 4 at physical offset {BASE + starts[4]}"]
    found = findings_of(segment_path(tmp_path, data + bytes(300) + b"\x07" + bytes(99)))
    assert [(finding.field, str(len(data) + 300) in finding.message) for finding in found] == [
        ("unwritten space", True)
    ]


def test_store_time_that_runs_back_is_found(tmp_path: Path) -> None:
    """Records in the log are in the order of their store times."""
    first = encoded(BASE)
    data = first + encoded(BASE + len(first), store_time_ms=1_600_000_000_000)
    found = findings_of(segment_path(tmp_path, data))
    assert [(finding.item.split(" at ")[0], finding.field) for finding in found] == [("record 1", "store time")]


def test_record_of_another_place_is_found(tmp_path: Path) -> None:
    """A sound record whose stored offset is not its place is named by its physical offset."""
    data = run_of(1, BASE) + run_of(1, BASE + 4096, topic="elsewhere")
    found = findings_of(segment_path(tmp_path, data))
    assert [finding.field for finding in found] == ["physical offset"]


def test_window_limits_what_is_shown_but_not_what_is_checked(tmp_path: Path) -> None:
    """Start and limit choose the items; findings still cover the whole file."""
    data, starts = good_segment(end="unwritten")
    path = segment_path(tmp_path, flipped(data, starts[4] + 90, 0x01))
    steps = list(inspect_file(path, start=1, limit=2))
    assert [step.number for step in steps if isinstance(step, Item)] == [1, 2]
    assert [step.field for step in steps if isinstance(step, Finding)] == ["body"]


def test_progress_ends_with_the_whole_file(tmp_path: Path) -> None:
    """The last call of the callback has the whole size."""
    data, _ = good_segment(end="unwritten")
    calls: list[int] = []
    findings_in(inspect_file(segment_path(tmp_path, data), progress=calls.append))
    assert calls[-1] == len(data)


def test_segment_without_its_name_takes_the_base_of_its_first_record(tmp_path: Path) -> None:
    """A copied segment is recognised by content."""
    data, _ = good_segment(end="unwritten")
    path = tmp_path / "copy.bin"
    path.write_bytes(data)
    inspection = inspect_file(path)
    assert inspection.kind == "segment"
    assert findings_in(inspection) == []
    assert inspection.summary["base_physical_offset"] == BASE


CHECKPOINT = store_checkpoint.encode(
    StoreCheckpoint(1_700_000_000_123, 1_699_999_999_623, 0, 0, 99, flushed_physical_offset=4711).of_reput()
)
SMALL_FILES = {
    "checkpoint": ("checkpoint", CHECKPOINT),
    "epochFileCheckpoint": ("epoch_file", epoch_file.encode([Epoch(1, 0), Epoch(2, 500)])),
    "epochFileCheckpoint.bak": ("epoch_file", b"0\n0\n"),
    "topics.json": ("topics", golden("config_files/v1/topics.json")),
    "topic_journal": ("topic_journal", golden("reput_files/v1/topic_journal.hex")),
    "consumerOffset.json": ("consumer_offsets", golden("config_files/v1/consumerOffset.json")),
    "index_progress": ("checksummed", checksummed.wrap("index_progress", b'{"a":1}')),
    "delayOffset.json": ("delay_offsets", b'{"offsetTable":{1:5,2:0}}'),
    "subscriptionGroup.json": ("subscription_groups", golden("config_files/v1/subscriptionGroup.json")),
    "levels.json": ("delay_offsets", b'{"offsetTable":{1:5,2:0}}'),
    "retention_history.jsonl": ("retention_history", b'{"time_ms":1,"trigger":"SCHEDULED"}\n'),
    "ballast": ("ballast", bytes(64)),
    "index_ballast": ("ballast", b""),
    "index_filters/20231114221320123": ("index_filter", golden("index_filter/v1/three_keys.hex")),
    "cut/00000000000000000550-3": ("cut", b"\0\0\1"),
    "lock": ("lock", b"lock"),
    "abort": ("abort", b"4711"),
    "abort.bak": ("abort", b"4711 follows owed\n"),
}


@pytest.mark.parametrize("name", SMALL_FILES)
def test_small_files_are_recognised_and_sound(tmp_path: Path, name: str) -> None:
    """Every small store file is known by its name or content and prints without findings."""
    kind, data = SMALL_FILES[name]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    inspection = inspect_file(path)
    items = list(inspection)
    assert inspection.kind == kind
    assert inspection.is_sound
    assert (not items) == (data == b"0\n0\n")


@pytest.mark.parametrize(
    ("name", "data", "position", "field"),
    [
        ("checkpoint", CHECKPOINT[:100], 100, ""),
        ("checkpoint", b"\x80" + CHECKPOINT[1:], 0, "commit_log_time_ms"),
        ("checkpoint", CHECKPOINT[:8] + b"\x7f" + CHECKPOINT[9:], 8, "consume_queue_time_ms"),
        ("checkpoint", CHECKPOINT[:24] + b"\xff" + CHECKPOINT[25:], 24, "master_flushed_physical_offset"),
        ("checkpoint", CHECKPOINT[:2056] + b"\x7f" + CHECKPOINT[2057:], 2056, "flushed_time_ms"),
        ("checkpoint", CHECKPOINT[:200] + b"\1" + CHECKPOINT[201:], 200, "padding"),
        ("checkpoint", CHECKPOINT + b"\0", 4096, "size"),
        ("epochFileCheckpoint", b"1\n5\n1-0\n", 4, ""),
        ("topics.json", b'{"topicConfigTable":{"a":7}}', 0, "a"),
        ("topics.json", b"\xff", 0, ""),
        ("topic_journal", golden("reput_files/v1/topic_journal.hex") + b"RPUT", 415, "size"),
        ("index_filters/20231114221320123", golden("index_filter/v1/three_keys.hex")[:-1], 191, "size"),
        ("index_filters/20231114221320123", flipped(golden("index_filter/v1/three_keys.hex"), 150, 1), 128, "check"),
        ("index_filters/20231114221320123", flipped(golden("index_filter/v1/three_keys.hex"), 50, 1), 28, "checksum"),
        ("consumerOffset.json", b'{"offsetTable":{"t@g":{0:-5}}}', 0, "queue offset"),
        ("index_progress", flipped(checksummed.wrap("x", b"abc"), 34, 1), 28, "checksum"),
        ("delayOffset.json", b'{"offsetTable":{"a":5}}', 0, "delay level"),
        ("subscriptionGroup.json", b'{"subscriptionGroupTable":{"g":[]}}', 0, "g"),
        ("retention_history.jsonl", b'{"time_ms":1}\n{"ti\n', 14, "content"),
        ("lock", b"other", 0, "content"),
        ("abort", b"x", 0, "content"),
    ],
)
def test_damaged_small_files_are_named_by_position(
    tmp_path: Path, name: str, data: bytes, position: int, field: str
) -> None:
    """Damage in a small file is a single finding with position and field."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    assert [(finding.position, finding.field) for finding in findings_in(inspect_file(path))] == [(position, field)]


def test_files_of_unknown_kind_are_refused(tmp_path: Path) -> None:
    """A file of no known kind, and a kind that does not exist, raise an error."""
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(UnknownKind):
        detect_kind(path)
    for kind in ("nonsense", "segment:5", "index_file:x"):
        with pytest.raises(UnknownKind):
            inspect_file(path, kind=kind)


def test_empty_file_is_no_crash(tmp_path: Path) -> None:
    """An empty file of any kind gives findings or nothing, never an exception."""
    path = tmp_path / "empty"
    path.write_bytes(b"")
    for kind in ("segment", "consume_queue", "index_file", "checkpoint", "epoch_file", "topics", "checksummed"):
        findings_in(inspect_file(path, kind=kind))


def test_a_change_of_topics_is_plain_json() -> None:
    """Its versions and topics lie within it, and `--json` shows all of them."""
    change = TopicChange(DataVersion(), DataVersion(), {"t": TopicConfig("t", 1, 1)}, ("u",)).encode()
    inspection = Inspection(
        Path("topics.journal"), "topic_journal", len(change), inspect_small, Window(), lambda _: None
    )
    (item,) = inspect_small(change, inspection)
    assert isinstance(item, Item)
    shown = json.loads(json.dumps(item.fields))
    assert (shown["put"]["t"]["name"], shown["removed"]) == ("t", ["u"])
    assert shown["before"] == shown["after"]
