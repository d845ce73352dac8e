# SPDX-License-Identifier: Apache-2.0
"""DelayOffsets: the queue offsets up to which each delay level is delivered, in config/delayOffset.json.

Invariants: the file covers only messages that are delivered and on the log's disk, so a crash of any process delivers
some messages twice and loses none; it is replaced atomically. Deliveries that are not on the disk yet are kept only in
memory, and are dropped once the log has another history.
Callers: the event loop's thread. Layout: docs/formats/config_files.md section 4; RocketMQ's counterpart is
ScheduleMessageService, which writes every ten seconds and may run ahead of the disk.
"""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from libs.formats.config import delay_offsets_json
from libs.formats.config.config_json import DataVersion
from libs.formats.config.delay_offsets_json import DelayOffsetsFile
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.log.state import config_file
from libs.machine.clock import Clock
from libs.machine.failpoints import failpoint
from libs.machine.fs import Fs
from libs.machine.uninterrupted import uninterrupted
from services.indexer.engine.tables.queues import ConsumeQueueTable

_log = logging.getLogger(__name__)


class _Unsynced(NamedTuple):
    """Delivered up to a queue offset by batches that end at this physical offset."""

    next_queue_offset: int
    end_physical_offset: int


class DelayOffsets:
    """The offsets of all levels, by the id of their queue (level minus 1). Create it, then `load` it once."""

    def __init__(self, fs: Fs, path: Path, queues: ConsumeQueueTable, clock: Clock) -> None:
        self._fs = fs
        self._queues = queues
        self._path = path
        self._clock = clock
        self.history_count = 0
        """Grows when the log's history changes. The result of an append meanwhile is not valid."""
        self._certain: dict[int, int] = {}
        self._unsynced: dict[int, _Unsynced] = {}
        self._version = DataVersion()
        self._is_there = False
        self._change_count = 0
        self._saved_change_count = 0
        self._save_lock = asyncio.Lock()

    def load(self) -> None:
        """Read the file, or RocketMQ's copy if it is missing, empty or damaged, once the queues are loaded.

        Raises ConfigFileDamaged if both are damaged.
        """
        file = config_file.read(self._fs, self._path, delay_offsets_json.loads)
        if file is not None:
            self._is_there = True
            self._version = file.data_version or DataVersion()
            self._certain = {level - 1: queue_offset for level, queue_offset in file.offsets.items()}
        elif self._queues.queue_ids(SCHEDULE_TOPIC):
            why = "if delayed messages were delivered before, those that the log still has are delivered once more"
            _log.warning("%s is missing or empty: %s", self._path, why)

    def next_of(self, queue_id: int) -> int:
        """Return the queue offset of the next message to deliver, 0 at first."""
        unsynced = self._unsynced.get(queue_id)
        return self._certain.get(queue_id, 0) if unsynced is None else unsynced.next_queue_offset

    def begin(self, queue_id: int) -> None:
        """Begin a level that has messages. Its offset is 0 unless another offset is known."""
        self._certain.setdefault(queue_id, 0)

    def delivered(self, queue_id: int, next_queue_offset: int, *, end_physical_offset: int, is_on_disk: bool) -> None:
        """Record that messages up to this queue offset were appended, by a batch that ends at this physical offset."""
        self._unsynced[queue_id] = _Unsynced(next_queue_offset, end_physical_offset)
        if is_on_disk:
            for known, unsynced in list(self._unsynced.items()):
                if unsynced.end_physical_offset <= end_physical_offset:
                    self.move(known, unsynced.next_queue_offset)

    def certain(self) -> dict[int, int]:
        """Return the queue offset up to which each level is delivered for certain, by the id of its queue."""
        return dict(self._certain)

    def confirm(self, queue_id: int, next_queue_offset: int) -> None:
        """Set the certain offset of a level from a record of the log. Later deliveries stay."""
        unsynced = self._unsynced.get(queue_id)
        self.move(queue_id, next_queue_offset)
        if unsynced is not None and unsynced.next_queue_offset > next_queue_offset:
            self._unsynced[queue_id] = unsynced

    def move(self, queue_id: int, next_queue_offset: int) -> None:
        """Continue at this queue offset, in place of any offset before."""
        self._unsynced.pop(queue_id, None)
        if self._certain.get(queue_id, 0) != next_queue_offset:
            self._certain[queue_id] = next_queue_offset
            self._change_count += 1

    def step_over(self, queue_id: int, next_queue_offset: int) -> None:
        """Record that messages up to here need no delivery. Deliveries before may still not be on the disk."""
        unsynced = self._unsynced.get(queue_id)
        if unsynced is None:
            self.move(queue_id, next_queue_offset)
        else:
            self._unsynced[queue_id] = _Unsynced(next_queue_offset, unsynced.end_physical_offset)

    def change_history(self, is_truncated: bool) -> None:
        """Deliver again messages that were not on the log's disk: it has another history, and may have lost them.

        If the queues were cut for it, new messages may take the places of lost messages. If it is another log, the
        queues are gone, and all messages that wait in it must be delivered.
        """
        self.history_count += 1
        self._unsynced.clear()
        if is_truncated:
            for queue_id, queue_offset in sorted(self._certain.items()):
                queue = self._queues.find(SCHEDULE_TOPIC, queue_id)
                self.move(queue_id, min(queue_offset, 0 if queue is None else queue.max_queue_offset))

    async def save(self, *, is_first: bool = False) -> None:
        """Write the file if a certain offset changed since it was written. Durable on return. Raises OSError.

        With `is_first` it is also written if no file exists and a level has messages: then a later start knows that no
        file was lost. It is written to its end even if the caller is cancelled meanwhile.
        """
        await uninterrupted(self._save(is_first))

    async def _save(self, is_first: bool) -> None:
        async with self._save_lock:
            change_count = self._change_count
            is_missing = is_first and bool(self._certain) and not self._is_there
            if change_count == self._saved_change_count and not is_missing:
                return
            version = replace(self._version, counter=self._version.counter + 1, timestamp_ms=self._clock.now_ms())
            offsets = {queue_id + 1: queue_offset for queue_id, queue_offset in self._certain.items()}
            data = delay_offsets_json.dumps(DelayOffsetsFile(offsets, version)).encode()
            await asyncio.to_thread(self._replace, data)
            self._version, self._is_there = version, True
            self._saved_change_count = change_count

    def _replace(self, data: bytes) -> None:
        failpoint("delay_offsets.before_save")
        self._fs.make_directory(self._path.parent)
        self._fs.write_atomic(self._path, data)
        failpoint("delay_offsets.after_save")
