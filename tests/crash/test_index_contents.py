# SPDX-License-Identifier: Apache-2.0
"""The comparison of indexes finds each kind of difference, and none between equal indexes."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.formats.indexes import index_file
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.follow.indexes import Reached
from tests.crash.index_contents import differences
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, SMALL, feed, make_indexer

SLOTS = SMALL.index_slot_count


def filled(fs: MemoryFs, directory: Path, log: FakeLog, *, start_ms: int = 1_700_000_000_000) -> None:
    """Indexes of the log in a directory, made at some time."""
    config = type(SMALL)(
        data_dir=directory,
        queue_file_size_bytes=SMALL.queue_file_size_bytes,
        index_slot_count=SLOTS,
        index_entry_capacity=SMALL.index_entry_capacity,
    )
    feed(make_indexer(log, fs, config, ManualClock(start_ms)), log, record_count_max=7)


@pytest.fixture
def log() -> FakeLog:
    made = FakeLog()
    for number in range(50):
        made.append("T", number % 3, tag="A", keys=f"all k{number % 5}")
    return made


def damaged(fs: MemoryFs, room: str, position: int, value: bytes) -> None:
    """Change bytes of the first file of a room."""
    path = DATA_DIR / room
    while fs.is_directory(path):
        path = path / fs.list(path)[0]
    fs.open_mapped(path).buffer[position : position + len(value)] = value


def test_equal_indexes_are_equal_whenever_they_were_made(log: FakeLog) -> None:
    """Names of index files are times, so they do not count."""
    fs = MemoryFs()
    filled(fs, DATA_DIR, log)
    filled(fs, Path("/other"), log, start_ms=1_800_000_000_000)
    assert fs.list(DATA_DIR / "index") != fs.list(Path("/other/index"))
    assert differences(fs, DATA_DIR, Path("/other"), index_slot_count=SLOTS) == []


ENTRY_AT = index_file.entry_position(1, SLOTS)
DAMAGES: dict[str, tuple[Callable[[MemoryFs], None], str]] = {
    "a unit": (lambda fs: damaged(fs, "consumequeue", 27, b"\x01"), "queue T/0 differs in .* unit 1"),
    "behind the units": (lambda fs: damaged(fs, "consumequeue/T/2", 319, b"\x01"), "queue T/2 differs"),
    "a queue is missing": (lambda fs: remove_queue(fs), "queue T/0 has the files"),
    "a hash": (lambda fs: damaged(fs, "index", ENTRY_AT, b"\x01"), "index entry 0 is"),
    "an offset": (lambda fs: damaged(fs, "index", ENTRY_AT + 11, b"\x01"), "index entry 0 is"),
    "a time": (lambda fs: damaged(fs, "index", ENTRY_AT + 14, b"\x01"), "index entry 0 is"),
    "a chain": (lambda fs: damaged(fs, "index", ENTRY_AT + 19, b"\x07"), "entry 1 leads to 7, not to 0"),
    "a slot": (lambda fs: empty_slot(fs), "slot .* does not lead to entry"),
    "an entry less": (lambda fs: damaged(fs, "index", index_file.ENTRY_COUNT_AT + 3, b"\x05"), "index entry 4 is"),
}


def remove_queue(fs: MemoryFs) -> None:
    """Remove the files of a queue. Its directory stays."""
    directory = DATA_DIR / "consumequeue" / "T" / "0"
    for name in fs.list(directory):
        fs.remove(directory / name)


def empty_slot(fs: MemoryFs) -> None:
    """Let a slot that is in use lead nowhere."""
    data = fs.read(DATA_DIR / "index" / fs.list(DATA_DIR / "index")[0])
    at = next(at for at in range(40, 40 + 4 * SLOTS, 4) if any(data[at : at + 4]))
    damaged(fs, "index", at, bytes(4))


@pytest.mark.parametrize("name", DAMAGES)
def test_a_difference_is_found_and_named(log: FakeLog, name: str) -> None:
    """Each kind of wrong byte is seen, in either of the two."""
    damage, text = DAMAGES[name]
    fs = MemoryFs()
    filled(fs, DATA_DIR, log)
    filled(fs, Path("/other"), log)
    damage(fs)
    for pair in ((DATA_DIR, Path("/other")), (Path("/other"), DATA_DIR)):
        found = "; ".join(differences(fs, *pair, index_slot_count=SLOTS))
        assert re.search(text, found), found


def test_what_the_log_no_longer_has_does_not_count(log: FakeLog) -> None:
    """Indexes that were built when the log had lost its beginning are equal from there on, and only from there on."""
    fs = MemoryFs()
    filled(fs, DATA_DIR, log)
    start = log.records[20].physical_offset
    config = type(SMALL)(
        data_dir=Path("/other"),
        queue_file_size_bytes=SMALL.queue_file_size_bytes,
        index_slot_count=SLOTS,
        index_entry_capacity=SMALL.index_entry_capacity,
    )
    indexer = make_indexer(log, fs, config)
    indexer.indexes.queues.min_physical_offset = start
    indexer.indexes.reached = Reached(start, start)
    for batch in log.batches(start):
        indexer.indexes.apply(batch)
    kept = {"index_slot_count": SLOTS, "min_physical_offset": start}
    assert differences(fs, DATA_DIR, Path("/other"), **kept) == []
    assert differences(fs, DATA_DIR, Path("/other"), index_slot_count=SLOTS)
    damaged(fs, "consumequeue/T/0", 20 * 15 + 7, b"\xee")
    assert "queue T/0 differs at queue offset 15" in differences(fs, DATA_DIR, Path("/other"), **kept)[0]
