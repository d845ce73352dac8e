# SPDX-License-Identifier: Apache-2.0
"""DelayOffsets: config/delayOffset.json, the progress of the delay levels as RocketMQ has it.

Delivery commits the progress as the offsets of the group `LEVELS_GROUP`. The file has the same offsets for RocketMQ. At
a start the file has precedence, because RocketMQ writes only the file. So it never has older offsets than
consumerOffset.json: each write of that file begins with a `save`, after its own offsets are known.
Callers: the event loop's thread. Layout: docs/formats/config_files.md section 4; RocketMQ's counterpart is
ScheduleMessageService.
"""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from libs.formats.config import delay_offsets_json
from libs.formats.config.config_json import DataVersion
from libs.formats.config.delay_offsets_json import DelayOffsetsFile
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.system_topics import LEVELS_GROUP
from libs.log.state import config_file
from libs.machine.clock import Clock
from libs.machine.failpoints import failpoint
from libs.machine.fs import Fs
from libs.machine.uninterrupted import uninterrupted
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets
from services.indexer.engine.tables.queues import ConsumeQueueTable


class DelayOffsets:
    """The file of a store. Create it, then `load` it once, after the offsets of the groups."""

    def __init__(self, fs: Fs, path: Path, groups: ConsumerOffsets, clock: Clock) -> None:
        self._fs, self._path, self._clock = fs, path, clock
        self._groups = groups
        self._version = DataVersion()
        self._saved: dict[int, int] = {}
        self._save_lock = asyncio.Lock()
        groups.before_write = self.save

    def load(self) -> None:
        """Give the group the offsets of the file, or of RocketMQ's copy if the file is missing, empty or damaged.

        Raises ConfigFileDamaged if both are damaged.
        """
        file = config_file.read(self._fs, self._path, delay_offsets_json.loads)
        if file is not None:
            self._version = file.data_version or DataVersion()
            self._saved = {level - 1: queue_offset for level, queue_offset in file.offsets.items()}
            self._apply(self._saved)

    def limit(self, queues: ConsumeQueueTable) -> None:
        """Move offsets back to the ends of their queues: the log has lost records, or is another log."""
        found = ((queue_id, queues.find(SCHEDULE_TOPIC, queue_id)) for queue_id in self._groups_offsets())
        ends = {queue_id: 0 if queue is None else queue.max_queue_offset for queue_id, queue in found}
        self._apply({queue_id: min(offset, ends[queue_id]) for queue_id, offset in self._groups_offsets().items()})

    async def save(self) -> None:
        """Write the file if an offset changed since it was written. Durable on return. Raises OSError.

        It is written to its end even if the caller is cancelled meanwhile.
        """
        await uninterrupted(self._save())

    async def _save(self) -> None:
        async with self._save_lock:
            offsets = self._groups_offsets()
            if offsets == self._saved:
                return
            version = replace(self._version, counter=self._version.counter + 1, timestamp_ms=self._clock.now_ms())
            levels = {queue_id + 1: queue_offset for queue_id, queue_offset in sorted(offsets.items())}
            data = delay_offsets_json.dumps(DelayOffsetsFile(levels, version)).encode()
            await asyncio.to_thread(self._replace, data)
            self._version, self._saved = version, offsets

    def _replace(self, data: bytes) -> None:
        failpoint("delay_offsets.before_save")
        self._fs.make_directory(self._path.parent)
        self._fs.write_atomic(self._path, data)
        failpoint("delay_offsets.after_save")

    def _groups_offsets(self) -> dict[int, int]:
        return self._groups.of_topic(LEVELS_GROUP, SCHEDULE_TOPIC)

    def _apply(self, offsets: dict[int, int]) -> None:
        self._groups.apply(
            LEVELS_GROUP, {(SCHEDULE_TOPIC, queue_id): queue_offset for queue_id, queue_offset in offsets.items()}
        )
