# SPDX-License-Identifier: Apache-2.0
"""ConsumerOffsets: how far consumer groups are, in config/consumerOffset.json.

Invariants: names were checked before they come here; the number of offsets is bounded; the file is replaced atomically
and the version before it stays beside it as `.bak`, as RocketMQ does it. Offsets that were committed less than the
flush interval before a crash may be lost: the consumer then reads some messages twice.
Callers: the event loop's thread. Layout: docs/formats/config_files.md; RocketMQ's counterpart is ConsumerOffsetManager.
"""

import asyncio
import logging
from pathlib import Path

from libs.formats import consumer_offsets_json
from libs.formats.config_json import DataVersion
from libs.formats.consumer_offsets_json import ConsumerOffsetsFile
from libs.formats.errors import FormatError
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.machine.uninterrupted import uninterrupted
from services.indexer.errors import WindowFull

PATH = Path("config") / "consumerOffset.json"

_log = logging.getLogger(__name__)


class ConsumerOffsets:
    """The offsets of all groups. Make it, then `load` it once."""

    def __init__(self, fs: Fs, path: Path, clock: Clock, *, count_max: int) -> None:
        self._fs = fs
        self._path = path
        self._backup_path = path.with_name(path.name + ".bak")
        self._clock = clock
        self._count_max = count_max
        self._offsets: dict[str, dict[tuple[str, int], int]] = {}
        self._version = DataVersion()
        self._change_count = 0
        self._saved_change_count = 0
        self._good_data = b""
        self._turn = asyncio.Lock()
        self.count = 0
        """Offsets that are kept."""

    def load(self) -> None:
        """Read the file, or the one before it if it is missing, empty or damaged. Raises FormatError if both are."""
        for path in (self._path, self._backup_path):
            try:
                data = self._fs.read(path)
                file = consumer_offsets_json.loads(data.decode()) if data.strip() else None
            except FileNotFoundError:
                continue
            except (FormatError, UnicodeDecodeError) as error:
                if path == self._backup_path or not self._fs.exists(self._backup_path):
                    raise
                _log.error("%s is damaged, taking the version before it: %s", path, error)
                continue
            if file is not None:
                self._good_data = data
                self._version = file.data_version or DataVersion()
                for (topic, group), queues in file.offsets.items():
                    for queue_id, queue_offset in queues.items():
                        self._offsets.setdefault(group, {})[topic, queue_id] = queue_offset
                self.count = sum(map(len, self._offsets.values()))
                return

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the next queue offset of a group; None if it has none."""
        return self._offsets.get(group, {}).get((topic, queue_id))

    def commit(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        """Set offsets by (topic, queue id), all or none. Raises WindowFull when there would be too many."""
        known = self._offsets.get(group, {})
        new_count = sum(queue not in known for queue in offsets)
        if self.count + new_count > self._count_max:
            raise WindowFull("consumer offsets", limit=self._count_max)
        if any(known.get(queue) != queue_offset for queue, queue_offset in offsets.items()):
            self._offsets.setdefault(group, {}).update(offsets)
            self.count += new_count
            self._change_count += 1

    def groups(self) -> list[str]:
        """Names of the groups that have offsets, sorted."""
        return sorted(self._offsets)

    def offsets_of(self, group: str) -> list[tuple[str, int, int]]:
        """Topic, queue id and next queue offset of a group, by topic and queue id."""
        offsets = self._offsets.get(group, {})
        return [(topic, queue_id, offsets[topic, queue_id]) for topic, queue_id in sorted(offsets)]

    async def save(self) -> None:
        """Write the file if anything changed since it was written. Durable on return. Raises OSError.

        It is written to its end even if the caller goes away meanwhile.
        """
        await uninterrupted(self._save())

    async def _save(self) -> None:
        async with self._turn:
            change_count = self._change_count
            if change_count == self._saved_change_count:
                return
            version = DataVersion(
                counter=self._version.counter + 1,
                timestamp_ms=self._clock.now_ms(),
                state_version=self._version.state_version,
            )
            table: dict[tuple[str, str], dict[int, int]] = {}
            for group in self.groups():
                for topic, queue_id, queue_offset in self.offsets_of(group):
                    table.setdefault((topic, group), {})[queue_id] = queue_offset
            data = consumer_offsets_json.dumps(ConsumerOffsetsFile(table, version)).encode()
            await asyncio.to_thread(self._replace, data)
            self._version = version
            self._saved_change_count = change_count

    def _replace(self, data: bytes) -> None:
        self._fs.make_directory(self._path.parent)
        if self._good_data:
            self._fs.write_atomic(self._backup_path, self._good_data)
        self._fs.write_atomic(self._path, data)
        self._good_data = data
