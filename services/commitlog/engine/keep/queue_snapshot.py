# SPDX-License-Identifier: Apache-2.0
"""The file `reput/queue_offsets`: the last snapshot of queue counters, segments' times and writers.

Invariant: all bytes of the log below its `end_physical_offset` were synced before it was written.
A snapshot that is missing or damaged is no loss: the start then scans the log from its beginning.
Layout: libs/formats/state/queue_snapshot.py.
"""

from collections.abc import Iterator
from pathlib import Path

from libs.formats import store_layout
from libs.formats.state import queue_snapshot
from libs.formats.state.queue_snapshot import QueueSnapshot
from libs.kernel.append.topic_table import Counter
from libs.machine.fs import Fs


def load(fs: Fs, data_dir: Path) -> QueueSnapshot | None:
    """Read the snapshot; None if there is none. Raises FormatError for a damaged one."""
    path = data_dir / store_layout.QUEUE_SNAPSHOT
    return queue_snapshot.decode(fs.read(path)) if fs.exists(path) else None


def save(fs: Fs, data_dir: Path, snapshot: QueueSnapshot, counters: Iterator[Counter]) -> None:
    """Write the snapshot with these counters, durably. The caller has synced the log up to its end before. Blocks."""
    fs.write_atomic(data_dir / store_layout.QUEUE_SNAPSHOT, queue_snapshot.encode(snapshot, counters))
