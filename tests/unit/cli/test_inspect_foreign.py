# SPDX-License-Identifier: Apache-2.0
"""Queue files that only RocketMQ uses are shown unit by unit, and a unit that can't be right is reported."""

from pathlib import Path

import pytest

from cli.inspect.inspection import Finding, Item, UnknownKind
from cli.inspect.store import inspect_file
from libs.formats.indexes import consume_queue_ext
from libs.formats.indexes.batch_consume_queue import BatchConsumeQueueUnit
from tests.support import reference
from tests.support.inspections import findings_in


def batches(*units: BatchConsumeQueueUnit, capacity: int = 8) -> bytes:
    """A file with these units."""
    return b"".join(map(reference.batch_queue_unit, units)).ljust(46 * capacity, b"\0")


def unit(number: int, **changes: int) -> BatchConsumeQueueUnit:
    """The unit of this number, each of a record with three messages."""
    made = BatchConsumeQueueUnit(1_000 * number, 1_000, 7, 1_700_000_000_000, 3 * number, 3)
    return made._replace(**changes)


def put(root: Path, folder: str, data: bytes) -> Path:
    """A file in a directory of RocketMQ."""
    path = root / folder / "topic" / "0" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("folder", ["batchconsumequeue", "compaction/compactionCq"])
def test_batch_queue(tmp_path: Path, folder: str) -> None:
    """Each unit is shown, with its number of messages."""
    inspection = inspect_file(put(tmp_path, folder, batches(unit(0), unit(1), unit(2))))
    items = [step for step in inspection if isinstance(step, Item)]
    assert inspection.kind == "batch_queue"
    assert inspection.is_sound
    assert [item.fields["base_queue_offset"] for item in items] == [0, 3, 6]
    assert inspection.summary == {"unit_count": 3, "message_count": 9, "max_queue_offset": 9}


@pytest.mark.parametrize(
    ("data", "position", "field"),
    [
        (batches(unit(0), unit(1, base_queue_offset=2)), 46 + 28, "queue offset"),
        (batches(unit(0), unit(1, physical_offset=999)), 46, "physical offset"),
        (batches(unit(0)) + b"\0", 46 * 8, "size"),
        (bytes(46) + batches(unit(1)), 0, "values"),
        (b"", 0, "size"),
    ],
)
def test_damaged_batch_queue(tmp_path: Path, data: bytes, position: int, field: str) -> None:
    """The finding has the position and field of the damage."""
    (finding,) = findings_in(inspect_file(put(tmp_path, "batchconsumequeue", data)))
    assert (finding.position, finding.field) == (position, field)


def test_extension(tmp_path: Path) -> None:
    """Units of several sizes, up to the end mark; behind it nothing is looked at."""
    units = [reference.extension_unit(5, 6, b"\x01\x02"), reference.extension_unit(-7, 8, b"")]
    data = b"".join(units) + consume_queue_ext.END_OF_FILE + b"\x00\x05"
    inspection = inspect_file(put(tmp_path, "consumequeue_ext", data))
    items = [step for step in inspection if isinstance(step, Item)]
    assert (inspection.kind, inspection.is_sound) == ("queue_extension", True)
    assert [(item.position, item.fields["tags_code"], item.fields["bitmap"]) for item in items] == [
        (0, 5, "0102"),
        (22, -7, ""),
    ]
    damaged = put(tmp_path / "damaged", "consumequeue_ext", units[0] + b"\x00\x09" + bytes(20))
    assert [step.position for step in inspect_file(damaged) if isinstance(step, Finding)] == [22]


@pytest.mark.parametrize("folder", ["compaction/compactionLog", "timerlog"])
def test_what_is_not_read(tmp_path: Path, folder: str) -> None:
    """A file of RocketMQ with copies of records is not read as a segment, although it looks like a segment."""
    with pytest.raises(UnknownKind, match="RocketMQ's alone"):
        inspect_file(put(tmp_path, folder, bytes(64)))
