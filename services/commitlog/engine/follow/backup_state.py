# SPDX-License-Identifier: Apache-2.0
"""The state of a running store for a backup: an end of the log, and the small files of the store as of this end.

Invariants: all records below the end are durable and visible, and the queue offsets count exactly these records. Topics
and begins of topics are taken later, so that they include all topics of these records.
Callers: the loop that owns the log. docs/backup.md describes what a backup does with it.
"""

import asyncio
from collections.abc import Mapping

from msgspec import Struct

from libs.formats import store_layout
from libs.formats.config import topics_json
from libs.formats.epoch import Epoch
from libs.formats.state.log_history import TopicBeginsFile
from libs.formats.state.queue_snapshot import SnapshotEnd
from libs.segments.chain import SegmentChain
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.keep.queue_snapshot import SnapshotKeeper
from services.commitlog.engine.write.marks import Marks
from services.commitlog.engine.write.topics import TopicRegistry
from services.commitlog.errors import QueueOffsetsUnknown


class BackupState(Struct, frozen=True):
    """The extent of the log, and files by their path in the data directory. The end is exclusive."""

    min_physical_offset: int
    end_physical_offset: int
    segment_size_bytes: int
    history_id: str
    epochs: tuple[Epoch, ...]
    files: Mapping[str, bytes]


class BackupStates(Struct, frozen=True, eq=False):
    """Takes the state of a store."""

    _chain: SegmentChain
    _epochs: EpochHistory
    _marks: Marks
    _topics: TopicRegistry
    _snapshot: SnapshotKeeper

    async def take(self) -> BackupState:
        """Return the state at the present end of the log. Raises QueueOffsetsUnknown and OSError."""
        await self._snapshot.save()
        if self._snapshot.end_physical_offset is None:
            raise QueueOffsetsUnknown
        snapshot, end = await asyncio.to_thread(self._read_snapshot)
        await self._marks.visible.reached(end)
        return BackupState(
            min_physical_offset=self._chain.min_physical_offset,
            end_physical_offset=end,
            segment_size_bytes=self._chain.segment_size_bytes,
            history_id=self._epochs.history_id,
            epochs=tuple(epoch for epoch in self._epochs.epochs if epoch.start_physical_offset <= end),
            files={
                store_layout.TOPICS: topics_json.dumps(self._topics.file).encode(),
                store_layout.TOPIC_BEGINS: TopicBeginsFile(begins=dict(self._topics.begins.by_topic)).encode(),
                store_layout.QUEUE_SNAPSHOT: snapshot,
            },
        )

    def _read_snapshot(self) -> tuple[bytes, int]:
        """Return the file of the snapshot and its end. A later snapshot may have replaced it. Blocks."""
        data = self._snapshot.read()
        return data, SnapshotEnd.decode(data).end_physical_offset
