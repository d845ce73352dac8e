# SPDX-License-Identifier: Apache-2.0
"""The walk that all readers of a log share: its steps, its stops, and that it never looks at unread bytes."""

from pathlib import Path

import numpy as np
import pytest

from libs.formats.store_layout import file_name
from libs.kernel import layout
from libs.kernel.scan.scan_columns import ScanColumns
from libs.log import walk as log_walk
from libs.log.end import STALE_REASON, KnownDurable, ScanEndKind
from libs.log.files import MappedLogFile
from libs.log.walk import UNSOUND, LogWalk
from libs.machine.testing.memory_fs import MemoryFs
from tests.support.records import STORE_TIME_MS, encoded, run_of

SIZE = 4_096
DIRECTORY = Path("/commitlog")


def files_of(*contents: bytes) -> list[MappedLogFile]:
    """Files of a log with these contents, each followed by zeros."""
    fs = MemoryFs()
    fs.make_directory(DIRECTORY)
    for index, content in enumerate(contents):
        fs.write_atomic(DIRECTORY / file_name(index * SIZE), content.ljust(SIZE, b"\0"))
    return [MappedLogFile(fs, DIRECTORY / file_name(index * SIZE), SIZE) for index in range(len(contents))]


def walk_of(files: list[MappedLogFile], *, durable: KnownDurable | None = None, **options: int) -> LogWalk:
    """A walk with columns for three records."""
    return LogWalk(files, ScanColumns(3, 12), durable or KnownDurable(), clock_step_ms_max=1_000, **options)


def offsets_of(walk: LogWalk, start: int = 0) -> list[int]:
    """Physical offsets of all records, in the order of the steps."""
    columns = walk.columns
    return [
        int(offset)
        for _ in walk.steps(start)
        for offset in np.frombuffer(columns.physical_offsets, np.int64, columns.count)
    ]


def closed(base: int = 0) -> bytes:
    """A segment of ten records and the blank that closes it."""
    data = run_of(10, base)
    return data + (SIZE - len(data)).to_bytes(4) + b"\xcb\xd4\x31\x94"


@pytest.mark.parametrize("window_bytes", [1, 100, 257, 1 << 20])
def test_all_records_whatever_the_window(window_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps follow each other over the files without a gap; the last step of a closed file ends with the file."""
    monkeypatch.setattr(log_walk, "WINDOW_BYTES", window_bytes)
    files = files_of(closed(), closed(SIZE), run_of(4, 2 * SIZE))
    walk = walk_of(files)
    at = 0
    for step in walk.steps(0):
        assert files[step.file_index].base_physical_offset + step.start == at
        at = files[step.file_index].base_physical_offset + step.end
    assert at == 2 * SIZE + len(run_of(4, 2 * SIZE))
    assert len(offsets_of(walk_of(files))) == 24
    assert len(offsets_of(walk_of(files), SIZE)) == 14
    end = walk.end()
    assert (end.kind, end.physical_offset) == (ScanEndKind.CLEAN, at)


def test_nothing_is_touched_before_it_is_read() -> None:
    """`on_read` is called for the bytes of a file before a record in them is reported."""
    files = files_of(closed(), run_of(2, SIZE))
    heard: list[tuple[str, int]] = []
    walk = LogWalk(
        files,
        ScanColumns(3, 12),
        KnownDurable(),
        clock_step_ms_max=1_000,
        on_read=lambda file, size_bytes: heard.append((file.path.name, size_bytes)),
    )
    for step in walk.steps(0):
        assert heard[-1][0] == files[step.file_index].path.name
    assert sum(size_bytes for _, size_bytes in heard) == 2 * SIZE


def test_goes_on_behind_a_stop() -> None:
    """A checker may begin again behind damage; store times from before the damage still count."""
    data = bytearray(run_of(6))
    size = len(data) // 6
    data[2 * size + 90] ^= 1
    files = files_of(bytes(data))
    walk = walk_of(files)
    assert offsets_of(walk) == [0, size]
    assert walk.stop is not None
    assert (walk.stop.position, walk.stop.status) == (2 * size, layout.S_BAD_CRC)
    assert walk.end().kind is ScanEndKind.DAMAGED
    for _ in walk.steps_in(0, 3 * size):
        pass
    assert walk.stop is not None
    assert walk.stop.position == 6 * size
    assert walk.last_store_time_ms == STORE_TIME_MS


def test_a_record_of_an_older_log() -> None:
    """A record of an older log stops the walk although it passes all checks.

    Only the records before it are in the columns, unless the log is known to be durable there.
    """
    old = encoded(len(run_of(2)), crc_property=True, queue_offset=2, store_time_ms=STORE_TIME_MS - 5_000)
    files = files_of(run_of(2) + old)
    walk = walk_of(files)
    assert len(offsets_of(walk)) == 2
    assert walk.stop is not None
    assert (walk.stop.status, walk.stop.reason) == (UNSOUND, STALE_REASON)
    assert walk.stop.position == len(run_of(2))
    durable = KnownDurable(physical_offset=len(run_of(2) + old))
    assert len(offsets_of(walk_of(files, durable=durable))) == 3
    assert len(offsets_of(walk_of(files, durable=KnownDurable(is_foreign=True)))) == 3


def test_ends_where_it_is_told() -> None:
    """Bytes behind the given end are not looked at; a record that reaches over that end is damage."""
    files = files_of(closed(), run_of(4, SIZE) + b"rubbish")
    size = len(run_of(1, SIZE))
    whole = walk_of(files, end_physical_offset=SIZE + 2 * size)
    assert len(offsets_of(whole)) == 12
    assert whole.end().physical_offset == SIZE + 2 * size
    exactly = walk_of(files, end_physical_offset=SIZE)
    assert len(offsets_of(exactly)) == 10
    assert exactly.end().kind is ScanEndKind.CLEAN
    cut = walk_of(files, end_physical_offset=SIZE + 2 * size + 1)
    assert len(offsets_of(cut)) == 12
    assert cut.stop is not None
    assert cut.stop.status == layout.S_TRUNCATED
