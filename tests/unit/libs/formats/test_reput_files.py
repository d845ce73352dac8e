# SPDX-License-Identifier: Apache-2.0
"""Reput's own files: encoded content is decoded again, and content of another type is refused with its place."""

from collections.abc import Callable

import msgspec
import pytest

from libs.formats.errors import BadField, NewerVersion
from libs.formats.state import checksummed, log_history
from libs.formats.state.index_progress import IndexProgress, QueueBegin, Stepped, StepReason
from libs.formats.state.log_directories import LogDirectories
from libs.formats.state.log_history import LogHistoryFile, QueueEnd
from libs.formats.state.queue_snapshot import QueueCounter, QueueSnapshot, SegmentTimes, WriterBatch
from libs.formats.state.replication import InSyncFile, ReplicaFile, SharedStateFile, UnsentOffsetsFile


def test_they_come_back_as_they_were() -> None:
    """Each file with all its possible content is decoded as it was encoded."""
    progress = IndexProgress(
        epoch=3,
        stepped_over=[Stepped("t", 1, StepReason.NAME, 2, 3, 4, 5)],
        queue_begins=[QueueBegin("t", 1, 99)],
    )
    assert IndexProgress.decode(progress.encode()) == progress
    history = LogHistoryFile(history_id="0a", is_complete=False, known_physical_offset=9, ends=[QueueEnd("t", 0, 7, 5)])
    assert LogHistoryFile.decode(history.encode()) == history
    assert log_history.decode_name(log_history.encode_name("0a1b")) == "0a1b"
    directories = LogDirectories(["commitlog", "/disk2"])
    assert LogDirectories.decode(directories.encode()) == directories
    batch = WriterBatch("w", 1, 2, 3, 4, 5)
    snapshot = QueueSnapshot(9, 5, [SegmentTimes(0, 1, 5)], [QueueCounter("t\xff", 1, 2)], [batch], [("w", 2)])
    assert QueueSnapshot.decode(snapshot.encode_with(iter([(b"t\xff", 1, 2)]))) == snapshot


@pytest.mark.parametrize(
    ("kind", "decode", "content"),
    [
        (QueueSnapshot.KIND, QueueSnapshot.decode, {"end_physical_offset": 1}),
        (IndexProgress.KIND, IndexProgress.decode, {"epoch": "one"}),
        (IndexProgress.KIND, IndexProgress.decode, {"unknown": 1}),
        (LogHistoryFile.KIND, LogHistoryFile.decode, {"ends": [["t"]]}),
        (LogDirectories.KIND, LogDirectories.decode, ["commitlog"]),
        (ReplicaFile.KIND, ReplicaFile.decode, {"replicated_physical_offset": 1}),
        (ReplicaFile.KIND, ReplicaFile.decode, {"store_id": "0a", "unknown": 1}),
        (InSyncFile.KIND, InSyncFile.decode, {"history_id": "h", "epoch": 1, "leader": ["a"], "others": []}),
    ],
)
def test_content_of_another_type_is_refused(kind: str, decode: Callable[[bytes], object], content: object) -> None:
    """Content of another type is refused, even with a right checksum."""
    with pytest.raises(BadField) as caught:
        decode(checksummed.wrap(kind, msgspec.json.encode(content)))
    assert (caught.value.field, caught.value.position) == ("content", checksummed.HEADER_SIZE_BYTES)


@pytest.mark.parametrize(
    ("kind", "decode"),
    [
        (QueueSnapshot.KIND, QueueSnapshot.decode),
        (IndexProgress.KIND, IndexProgress.decode),
        (LogHistoryFile.KIND, LogHistoryFile.decode),
        (LogDirectories.KIND, LogDirectories.decode),
        (ReplicaFile.KIND, ReplicaFile.decode),
        (InSyncFile.KIND, InSyncFile.decode),
        (SharedStateFile.KIND, SharedStateFile.decode),
        (UnsentOffsetsFile.KIND, UnsentOffsetsFile.decode),
        (log_history.NAME_KIND, log_history.decode_name),
    ],
)
def test_a_file_of_a_later_version_is_no_damage(kind: str, decode: Callable[[bytes], object]) -> None:
    """A file of a later version raises NewerVersion.

    The error is not that of damage, after which code makes the file anew.
    """
    with pytest.raises(NewerVersion, match=f"the file of the kind {kind} is of version 2") as caught:
        decode(checksummed.wrap(kind, b"{}", version=2))
    assert (caught.value.version, caught.value.newest, caught.value.position) == (2, 1, 4)
