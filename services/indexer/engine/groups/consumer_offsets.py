# SPDX-License-Identifier: Apache-2.0
"""ConsumerOffsets: the offsets of consumer groups, in config/consumerOffset.json.

Invariants: callers check names before; the number of offsets and the bytes of their file are bounded; the file is
replaced atomically, and then its copy `.bak`, which is read if the file is unusable (RocketMQ's copy is a change
behind). Offsets that were committed less than the flush interval before a crash may be lost: consumers then read some
messages twice.
A save costs the event loop only the changed part: groups are kept in shards, each with the bytes of its part of the
file, and only the bytes of changed shards are encoded again, some offsets at a time. A thread joins the parts and
writes them.
In memory an offset is a text and a number, because there may be millions: the garbage collector has no objects to
visit, and groups share the texts of queues with frequent commits.
Unused groups can expire, except the groups of the store itself. The time of the last use is not in the file, so it
begins at the start at the earliest. It is a monotonic time, so that a jump of the clock expires no group.
Callers: the event loop's thread. Layout: docs/formats/config_files.md; RocketMQ's counterpart is ConsumerOffsetManager.
Decision: docs/decisions/0033-no-call-holds-the-loop.md.
"""

import asyncio
import functools
import logging
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from libs.formats.config import consumer_offsets_json
from libs.formats.config.config_json import DataVersion
from libs.formats.config.consumer_offsets_json import ENTRY_SEPARATOR, OFFSET_SIZE_BYTES_MAX, SEPARATOR
from libs.formats.limits import CONFIG_FILE_SIZE_BYTES_MAX
from libs.formats.state.system_topics import is_system_topic
from libs.log.state import config_file
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.machine.loop import in_steps
from libs.machine.uninterrupted import uninterrupted
from libs.requests.errors import WindowFull

SHARD_COUNT = 1_024
"""Parts of the file that are encoded separately: of a million offsets each has a thousand."""

FILE_SIZE_BYTES_MAX = CONFIG_FILE_SIZE_BYTES_MAX - 1024
"""Offsets that may need more bytes are refused: a start would not read the file."""

EXPIRY_LOOK_INTERVAL_S = 60
"""Time between two searches for expired groups."""

KEY_COUNT_MAX = 16_384
"""Texts of queues that are cached, so that groups share them."""

EXPIRED_SHOWN = 10
"""Names of groups in the log line about expired groups."""

Queue: TypeAlias = tuple[str, int]

_log = logging.getLogger(__name__)


class GroupOffset(NamedTuple):
    """The next queue offset of a group in a queue. The order is that of lists of groups: group, topic, queue id."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int


class _Shard(Struct):
    """Some of the groups, and their entries of the file, unless an offset changed since these were encoded."""

    groups: dict[str, dict[str, int]] = field(default_factory=dict)
    """By group, then by `_key`."""
    change_count: int = 0
    entries: bytes | None = None


class ConsumerOffsets:
    """The offsets of all groups. Create it, then `load` it once."""

    def __init__(self, fs: Fs, path: Path, clock: Clock, *, count_max: int, expire_s: int = 0) -> None:
        self._fs = fs
        self._path = path
        self._clock = clock
        self._count_max = count_max
        self._expire_s = expire_s
        self._used_s: dict[str, float] = {}
        """Time of the last read or commit of a group, if it was since the start."""
        self._begin_s = self._expiry_look_s = clock.monotonic_s()
        self._shards: dict[int, _Shard] = {}
        self._version = DataVersion()
        self._change_count = 0
        self._saved_change_count = 0
        self._size_bytes_max = 0  # of the file
        self._save_lock = asyncio.Lock()
        self.count = 0
        """Offsets that are kept."""
        self.had_file = False
        """Whether there was a file at the start."""
        self.on_change: Callable[[str, Mapping[Queue, int | None]], None] = lambda _group, _offsets: None
        """Called for each commit that changes an offset, and for each offset that a caller deletes, as None."""
        self.before_write: Callable[[], Awaitable[None]] = _nothing
        """Called when the offsets of the next file are known, before it is written. Raises OSError: nothing is."""

    def load(self) -> None:
        """Read the file, or its copy if it is missing, empty or damaged. Raises ConfigFileDamaged if both are."""
        file = config_file.read(self._fs, self._path, consumer_offsets_json.loads)
        if file is not None:
            self.had_file = True
            self._version = file.data_version or DataVersion()
            for (topic, group), queues in file.offsets.items():
                self._put(group, {_key(topic, queue_id): queue_offset for queue_id, queue_offset in queues.items()})

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the next queue offset of a group, or None if it has no offset."""
        found = self._offsets_of(group).get(_key(topic, queue_id))
        if found is not None:
            self._use(group)
        return found

    def of_topic(self, group: str, topic: str) -> dict[int, int]:
        """Return the offsets of a group in a topic with few queues, by queue id."""
        queues = ((_queue(key), queue_offset) for key, queue_offset in self._offsets_of(group).items())
        return {queue_id: queue_offset for (name, queue_id), queue_offset in queues if name == topic}

    def commit(self, group: str, offsets: dict[Queue, int]) -> None:
        """Set offsets by (topic, queue id), all or none. Raises WindowFull when there would be too many."""
        keyed = {_key(*queue): queue_offset for queue, queue_offset in offsets.items()}
        known = self._offsets_of(group)
        new = [key for key in keyed if key not in known]
        if self.count + len(new) > self._count_max:
            raise WindowFull("consumer offsets", limit=self._count_max)
        if self._size_bytes_max + _size_bytes_max(group, new) > FILE_SIZE_BYTES_MAX:
            raise WindowFull("bytes of consumer offsets", limit=FILE_SIZE_BYTES_MAX)
        if any(known.get(key) != queue_offset for key, queue_offset in keyed.items()):
            self._put(group, keyed)
            self._change_count += 1
            self.on_change(group, offsets)
        self._use(group)

    def apply(self, group: str, offsets: Mapping[Queue, int | None]) -> None:
        """Apply changes of other Indexers, by (topic, queue id). None is a deleted offset."""
        kept = {_key(*queue): queue_offset for queue, queue_offset in offsets.items() if queue_offset is not None}
        if kept:
            self._put(group, kept)
            self._change_count += 1
            self._use(group)
        self._drop(group, [_key(*queue) for queue, queue_offset in offsets.items() if queue_offset is None])

    async def delete(self, group: str, topic: str | None = None) -> int:
        """Delete the offsets of a group, all or only of a topic, and return how many. `save` makes it durable.

        Many offsets are deleted in steps; a commit meanwhile may stay or be deleted.
        """
        count = 0
        async for gone in self._forget(group, topic):
            self.on_change(group, {_queue(key): None for key in gone})
            count += len(gone)
        return count

    async def run_maintenance(self) -> None:
        """Delete expired groups, and save changes. Raises OSError."""
        now_s = self._clock.monotonic_s()
        if self._expire_s and now_s >= self._expiry_look_s + EXPIRY_LOOK_INTERVAL_S:
            self._expiry_look_s = now_s
            await self._expire(now_s - self._expire_s)
        await self.save()

    async def group_names(self) -> AsyncGenerator[list[str], None]:
        """Yield all groups, some at a time, in no order. Groups that come or go meanwhile may be among them or not."""
        for shard in list(self._shards.values()):
            async for names in in_steps(list(shard.groups)):
                yield names

    async def offsets(self, group: str | None = None) -> AsyncGenerator[list[GroupOffset], None]:
        """Yield the offsets of a group, or of all groups, in the manner of `group_names`."""
        groups = [shard.groups for shard in list(self._shards.values())]
        for found in groups if group is None else [{group: self._offsets_of(group)}]:
            async for offsets in in_steps(_walk(found)):
                yield offsets

    async def save(self) -> None:
        """Write the file if an offset changed since it was written. Durable on return. Raises OSError.

        It is written to its end even if the caller is cancelled meanwhile.
        """
        await uninterrupted(self._save())

    async def _forget(self, group: str, topic: str | None = None) -> AsyncGenerator[list[str], None]:
        """Drop the offsets of a group, all or only of a topic, and yield their keys, some at a time."""
        async for keys in in_steps(list(self._offsets_of(group))):
            yield self._drop(group, [key for key in keys if topic in (None, _queue(key)[0])])

    async def _expire(self, limit_s: float) -> None:
        """Delete the groups whose last use was before this time."""
        expired: list[str] = []
        async for names in self.group_names():
            for name in names:
                if self._used_s.get(name, self._begin_s) <= limit_s and not is_system_topic(name):
                    async for _ in self._forget(name):
                        pass
                    expired.append(name)
        if expired:
            shown = ", ".join(expired[:EXPIRED_SHOWN]) + (", …" if len(expired) > EXPIRED_SHOWN else "")
            _log.info("%d groups were not used for %d s and are forgotten: %s", len(expired), self._expire_s, shown)

    async def _save(self) -> None:
        async with self._save_lock:
            change_count = self._change_count
            if change_count == self._saved_change_count:
                return
            version = replace(self._version, counter=self._version.counter + 1, timestamp_ms=self._clock.now_ms())
            parts = [await self._entries(shard) for shard in list(self._shards.values())]
            entries = [part for part in parts if part]  # a shard may have lost all of its groups
            await self.before_write()
            await asyncio.to_thread(self._replace, version, entries)
            self._version = version
            self._saved_change_count = change_count

    async def _entries(self, shard: _Shard) -> bytes:
        """Return the shard's entries of the file. Changes while they are encoded are in the next save."""
        if shard.entries is not None:
            return shard.entries
        change_count = shard.change_count
        parts: dict[tuple[str, str], list[bytes]] = {}
        async for offsets in in_steps(_walk(shard.groups)):
            tables: dict[tuple[str, str], dict[int, int]] = {}
            for offset in offsets:
                tables.setdefault((offset.topic, offset.group), {})[offset.queue_id] = offset.queue_offset
            for name, queues in tables.items():
                parts.setdefault(name, []).append(consumer_offsets_json.encode_offsets(queues))
        encoded: list[bytes] = []
        async for found in in_steps(parts.items()):
            encoded += [consumer_offsets_json.encode_entry(*name, offsets) for name, offsets in found]
        entries = ENTRY_SEPARATOR.join(encoded)
        if shard.change_count == change_count:
            shard.entries = entries
        return entries

    def _replace(self, version: DataVersion, entries: list[bytes]) -> None:
        """Write the file, then its copy, in a thread."""
        self._fs.make_directory(self._path.parent)
        config_file.save(self._fs, self._path, consumer_offsets_json.assemble(version, entries))

    def _offsets_of(self, group: str) -> dict[str, int]:
        shard = self._shards.get(_shard_of(group))
        return {} if shard is None else shard.groups.get(group, {})

    def _put(self, group: str, offsets: dict[str, int]) -> None:
        shard = self._shards.setdefault(_shard_of(group), _Shard())
        known = shard.groups.setdefault(group, {})
        new = [key for key in offsets if key not in known]
        self.count += len(new)
        self._size_bytes_max += _size_bytes_max(group, new)
        known.update(offsets)
        shard.change_count += 1
        shard.entries = None

    def _drop(self, group: str, keys: list[str]) -> list[str]:
        """Drop the offsets of these keys that still exist. Returns their keys."""
        shard = self._shards.get(_shard_of(group))
        known = {} if shard is None else shard.groups.get(group, {})
        gone = [key for key in keys if known.pop(key, None) is not None]
        if shard is None or not gone:
            return []
        self.count -= len(gone)
        self._size_bytes_max -= _size_bytes_max(group, gone)
        if not known:
            del shard.groups[group]
            self._used_s.pop(group, None)
        shard.change_count += 1
        shard.entries = None
        self._change_count += 1
        return gone

    def _use(self, group: str) -> None:
        """Record that the group is in use now."""
        if self._expire_s:
            self._used_s[group] = self._clock.monotonic_s()


async def _nothing() -> None:
    pass


def _shard_of(group: str) -> int:
    return zlib.crc32(group.encode()) % SHARD_COUNT


@functools.lru_cache(KEY_COUNT_MAX)
def _key(topic: str, queue_id: int) -> str:
    """Return the queue as a single text. No name of a topic has an `@`."""
    return f"{topic}{SEPARATOR}{queue_id}"


def _queue(key: str) -> Queue:
    topic, _, queue_id = key.rpartition(SEPARATOR)
    return topic, int(queue_id)


def _size_bytes_max(group: str, keys: list[str]) -> int:
    return sum(OFFSET_SIZE_BYTES_MAX + key.rindex(SEPARATOR) + len(group) for key in keys)


def _walk(groups: dict[str, dict[str, int]]) -> Iterator[GroupOffset]:
    """Yield the offsets of these groups, which may change meanwhile."""
    for group in list(groups):
        offsets = groups.get(group, {})
        for key in list(offsets):
            if key in offsets:
                yield GroupOffset(group, *_queue(key), offsets[key])
