# SPDX-License-Identifier: Apache-2.0
"""SharedState: keeps the committed offsets of all groups in the log, for every Indexer of it and for restores.

Each change becomes a record of the log (docs/formats/state_record.md), and every Indexer applies the records of all
Indexers in their order; so a member that has the log has the state. A local change takes effect here at once. The
Indexer of the leader appends copies of the whole state to the log: when its log becomes the leader, and before records
are deleted that a late Indexer needs.
The state is in the log once a group has an offset, or the log reports that it has copies.
Invariants: `reput/shared_state` names a record, and all records before it are in the files of the groups; a change is
sent until its record comes back, also by the next process after an orderly stop. An Indexer that is killed loses the
changes of its last second.
Callers: the event loop's thread.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from libs.formats import store_layout
from libs.formats.errors import FormatError
from libs.formats.records.state_record import CopyPart, StateRecord
from libs.formats.state.replication import SharedStateFile
from libs.machine.fs import Fs
from libs.machine.loop import SupervisedLoop, in_steps
from libs.machine.uninterrupted import uninterrupted
from libs.machine.workers import workers
from libs.requests.errors import DependencyUnavailable, NotDurableYet, WindowFull
from services.indexer.engine.follow.indexes import Indexes
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.follow.reput_state import Stage
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets
from services.indexer.engine.groups.delay_offsets import DelayOffsets
from services.indexer.engine.log.source import LogRole, LogSink, NoSink, RecordSource
from services.indexer.engine.share.local_changes import LocalChanges, Place, Queue, changes, nested
from services.indexer.engine.share.state_queue import StateQueue
from services.indexer.engine.share.state_rebuild import Copies, StateRebuild
from services.indexer.engine.share.unsent_offsets import UnsentOffsets
from services.indexer.errors import AppendRefused, GroupsUnknown

SAVE_STEP_COUNT = 5
"""Rounds of sending between two checks whether the files must be written."""
COPY_BATCH_COUNT = 8
"""Records of a copy that are appended at once."""
COPY_WAIT_S = 10.0
"""Time that a trim waits until the copy that it needs can be read."""
SEND_WAIT_S = 2.0
"""Time that a stop waits until the last changes are in the log."""

UNSHARED = (DependencyUnavailable, NotDurableYet, AppendRefused)
"""Errors after which a change may not be in the log. It is sent again."""

_log = logging.getLogger(__name__)


class SharedState:
    """The shared state of an Indexer. Create it, `load`, `start`, `stop` and `finish` it, each once."""

    def __init__(
        self,
        fs: Fs,
        data_dir: Path,
        indexes: Indexes,
        polls: LongPolls,
        records: RecordSource,
        groups: ConsumerOffsets,
        delay_offsets: DelayOffsets,
        sink: LogSink,
        *,
        interval_ms: int,
        unsent_count_max: int,
        skip_below: int = 0,
        stage: Callable[[], Stage],
    ) -> None:
        self._fs = fs
        self._path = data_dir / store_layout.SHARED_STATE
        self._indexes = indexes
        self._groups = groups
        self._delay_offsets = delay_offsets
        self._sink = sink
        self._unsent_count_max = unsent_count_max
        self._stage = stage
        self._origin = f"{workers().chance().getrandbits(128):032x}"
        self._number = 0
        self._log_role: LogRole | None = None
        self._log_role_epoch = 0
        self._copied_epoch = 0
        self._has_records = False
        self._has_former = False
        """Whether the log has records of other Indexers or of former processes, as far as known."""
        self._was_level = False
        """Whether all records were read that the log had at the start."""
        self._saved: int | None = None
        self._changes = LocalChanges()
        self._left_unsent = UnsentOffsets(fs, data_dir / store_layout.UNSENT_OFFSETS)
        self._copies = Copies()
        self._rebuild: StateRebuild | None = StateRebuild()
        """The state read so far, as long as records before it are missing. None: no records are missing."""
        self._send_lock = asyncio.Lock()
        self._save_lock = asyncio.Lock()
        self._news = asyncio.Event()
        self._queue = StateQueue(
            indexes.queues, polls, records, on_record=self._read, on_gap=self._lack_records, skip_below=skip_below
        )
        self._loop = SupervisedLoop("sharing", self._run_maintenance, interval_ms=interval_ms, expected_errors=UNSHARED)
        groups.on_change = self._note

    @property
    def is_on(self) -> bool:
        """Whether the state is in the log, or goes there."""
        role = self._log_role
        return self._has_records or (role is not None and (role.is_replicated or self._groups.count > 0))

    @property
    def _has_others(self) -> bool:
        """Whether the log may have state that this process did not write there."""
        return self._has_former or (self._log_role is not None and self._log_role.is_replicated)

    def check_known(self) -> None:
        """Raise GroupsUnknown while offsets that were committed elsewhere may be missing here."""
        if self._queue.unreadable:
            raise GroupsUnknown(self._queue.unreadable)
        self._look()
        is_new = not self._groups.had_file and not self._has_records and not self._was_level
        if is_new or (self._has_others and self._rebuild is not None):
            raise GroupsUnknown

    def check_room(self) -> None:
        """Raise WindowFull while too many changes wait for a leader."""
        if self._changes.unsent_count + len(self._left_unsent) >= self._unsent_count_max:
            raise WindowFull("changes of consumer offsets that wait for the log", limit=self._unsent_count_max)

    def load(self) -> None:
        """Read the progress of records, and the unsent changes. Blocks. Raises NewerVersion and OSError."""
        if isinstance(self._sink, NoSink):
            return
        self._load_progress()
        self._left_unsent.load(self._queue.next_queue_offset)

    def _load_progress(self) -> None:
        try:
            file = SharedStateFile.decode(self._fs.read(self._path))
        except FileNotFoundError:
            return
        except FormatError as error:
            _log.error("%s is damaged, all records of the shared state are read anew: %s", self._path, error)
        else:
            self._rebuild = None
            self._saved = file.next_queue_offset
            self._queue.restart(file.next_queue_offset)
        self._has_records = self._has_former = True

    def start(self) -> None:
        """Begin to read, and to send."""
        self._queue.loop.start()
        self._loop.start()

    async def hand_over(self) -> None:
        """Send the last changes, and read them back, so that the indexes have their records. Short without a leader."""
        with contextlib.suppress(*UNSHARED, TimeoutError):
            async with asyncio.timeout(SEND_WAIT_S):
                await self.send()
                while self.is_on and self._changes:
                    self._news.clear()
                    await self._news.wait()

    async def stop(self) -> None:
        """Stop the loops. The log may lack the last changes."""
        await self._loop.stop()
        await self._queue.loop.stop()

    async def finish(self) -> None:
        """Send the unsent changes, if a leader answers in time, and save the state to files. Raises OSError."""
        with contextlib.suppress(*UNSHARED, TimeoutError):
            async with asyncio.timeout(SEND_WAIT_S):
                await self.send()
        await self.save()
        if not isinstance(self._sink, NoSink) and (self.is_on or self._log_role is None):
            await self._left_unsent.save(self._changes.unsent, self._saved or 0)

    def hear(self, log_role: LogRole, epoch: int) -> None:
        """Record the role of the log, as it reported in an epoch."""
        self._log_role, self._log_role_epoch = log_role, epoch
        if not self.is_on:
            self._changes.clear()
            self._left_unsent.clear()

    def change_history(self, is_truncated: bool) -> None:
        """Read all records anew if the log may have lost read records."""
        if is_truncated:
            self._delay_offsets.limit(self._indexes.queues)
        if is_truncated and self._has_records:
            self._begin_anew()
            self._queue.restart()

    async def send(self) -> None:
        """Append all local changes to the log, as durably as it promises. Raises an error of UNSHARED."""
        async with self._send_lock:
            while self.is_on and self._changes.unsent_count and not self._is_other_log:
                self._number += 1
                number, unsent = self._number, self._changes.pop(self._number)
                record = StateRecord(origin=self._origin, number=number, offsets=nested(unsent))
                try:
                    await self._sink.share([record])
                except BaseException:
                    self._changes.put_back(unsent, number)
                    raise

    async def keep(self, physical_offset: int) -> None:
        """Ensure that a log that leads has a whole copy at or past this offset. Raises DependencyUnavailable.

        Then the records below may be deleted: a later Indexer reads the copy. Before the log has reported whether it is
        the leader in this epoch, nothing may be deleted.
        """
        if isinstance(self._sink, NoSink):
            return
        if self._log_role is None or self._log_role_epoch != self._indexes.reached.epoch:
            raise DependencyUnavailable("commitlog", "it has not said yet whether it leads")
        if not self.is_on or not self._leads or self._copies.physical_offset >= physical_offset:
            return
        if self._queue.unreadable:  # a copy would lack its content
            raise DependencyUnavailable("commitlog", self._queue.unreadable)
        await self._copy()
        try:
            async with asyncio.timeout(COPY_WAIT_S):
                while self._copies.physical_offset < physical_offset:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise DependencyUnavailable("commitlog", "the copy of the groups' offsets can't be read yet") from None

    async def save(self) -> None:
        """Save the state that was read. Durable on return. Raises OSError."""
        await uninterrupted(self._save())

    @property
    def _is_other_log(self) -> bool:
        return self._stage() is Stage.OTHER_LOG

    @property
    def _leads(self) -> bool:
        """Whether the log is the leader, and the indexes are of its epoch."""
        log_role = self._log_role
        if self._is_other_log:
            return False
        return log_role is not None and log_role.is_leader and self._log_role_epoch == self._indexes.reached.epoch

    @property
    def _has_read_all(self) -> bool:
        """Whether all records of former epochs, and of former processes, were read. False without epochs."""
        epochs, indexed = self._indexes.history.epochs, self._indexes.reached.indexed_physical_offset
        return bool(epochs) and indexed >= epochs[-1].start_physical_offset and self._is_level

    @property
    def _is_level(self) -> bool:
        """Whether all records that the log had at the handshake were indexed, and read."""
        return self._indexes.completeness.is_complete and self._queue.is_level

    def _look(self) -> None:
        self._was_level |= self._log_role is not None and self._is_level

    def _note(self, group: str, offsets: Mapping[Queue, int | None]) -> None:
        """Record local changes."""
        if self._log_role is None or self.is_on:
            self._changes.note(group, offsets)

    async def _run_maintenance(self) -> None:
        """Append a copy if the log has become the leader, send changes, and save the progress of reading."""
        self._look()
        if not self.is_on:
            await self._left_unsent.remove()
            return
        self._resume()
        if self._leads and self._has_read_all and self._copied_epoch != (epoch := self._log_role_epoch):
            await self._settle(is_all=False)  # no other Indexer knows more than the leader's
            await self._copy()
            self._copied_epoch = epoch
        await self.send()
        await self._left_unsent.remove()
        if self._loop.step_count % SAVE_STEP_COUNT == 0:
            await self.save()

    def _resume(self) -> None:
        """Queue the previous process's unsent changes, after all records that may replace them are read."""
        if self._left_unsent and self._rebuild is None and self._queue.is_level and self._stage() is Stage.LIVE:
            for (group, topic, queue_id), queue_offset in self._left_unsent.take().items():
                self._groups.apply(group, {(topic, queue_id): queue_offset})
                self._changes.note(group, {(topic, queue_id): queue_offset})

    async def _save(self) -> None:
        async with self._save_lock:
            queue_offset = self._queue.next_queue_offset
            if self.is_on and self._rebuild is None and self._saved != queue_offset:
                await self._groups.save()
                data = SharedStateFile(next_queue_offset=queue_offset).encode()
                await asyncio.to_thread(self._fs.write_atomic, self._path, data)
                self._saved = queue_offset

    def _lack_records(self) -> None:
        """Begin anew, because unread records were deleted, which may have replaced unsent changes."""
        if self._queue.next_queue_offset:
            self._left_unsent.clear()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._rebuild, self._copies = StateRebuild(), Copies()
        self._has_former = True

    async def _read(self, record: StateRecord, physical_offset: int) -> None:
        """Apply a record of the log."""
        self._has_records = True
        self._has_former |= record.origin != self._origin
        if record.origin == self._origin and record.copy is None:
            self._changes.heard(record.number)
        is_copied = self._copies.read(record, physical_offset)
        if self._rebuild is not None:
            self._rebuild.read(record)
            if is_copied:
                await self._settle(is_all=True)
        elif record.copy is None:
            changed = dict(changes(record))
            self._left_unsent.drop(changed, self._queue.next_queue_offset)
            self._apply(changed)
        self._news.set()

    async def _settle(self, *, is_all: bool) -> None:
        """Apply the gathered state. `is_all`: offsets that are not in it are deleted."""
        rebuild = self._rebuild
        if rebuild is None:
            return
        if is_all:
            async for known in self._groups.offsets():
                gone = {entry[:3]: None for entry in known if entry[:3] not in rebuild.offsets}
                self._apply(gone)
        async for step in in_steps(rebuild.offsets.items()):
            self._apply(dict(step))
        if rebuild is self._rebuild:  # no records were lost meanwhile
            self._rebuild = None

    def _apply(self, offsets: Mapping[Place, int | None]) -> None:
        """Apply offsets of records, except for places with a local change that the log lacks."""
        groups: dict[str, dict[Queue, int | None]] = {}
        for (group, topic, queue_id), queue_offset in offsets.items():
            place = group, topic, queue_id
            if place not in self._changes and place not in self._left_unsent:
                groups.setdefault(group, {})[topic, queue_id] = queue_offset
        for group, queues in groups.items():
            self._groups.apply(group, queues)

    async def _copy(self) -> None:
        """Append a copy of the whole state."""
        async with self._send_lock:
            self._number += 1
            parts = [
                nested({entry[:3]: entry.queue_offset for entry in known}) async for known in self._groups.offsets()
            ]
            parts = parts or [{}]
            records = [
                StateRecord(
                    origin=self._origin,
                    number=self._number,
                    offsets=part,
                    copy=CopyPart(index, len(parts)),
                )
                for index, part in enumerate(parts)
            ]
            for start in range(0, len(records), COPY_BATCH_COUNT):
                await self._sink.share(records[start : start + COPY_BATCH_COUNT])
