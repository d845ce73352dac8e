# SPDX-License-Identifier: Apache-2.0
"""UnsyncedFiles: the queues with unsynced bytes or names, and the number of files that must stay mapped for them.

A queue whose unsynced units are in memory needs no mapped file.
Invariants: the files with unsynced bytes and the files that a sync works on are at most 7/8 of the files that may be
mapped, for any number of queues; queues are in the order in which they were written to, so that a run can be repeated
exactly.
Callers: the event loop's thread.
"""

from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.unit_memory import MemoryBudget


class UnsyncedFiles:
    """The unsynced files of a store."""

    def __init__(self, mapped_file_count_max: int) -> None:
        self._dirty: dict[ConsumeQueue, int] = {}
        """Upper bound of the number of files with unsynced bytes, by queue."""
        self._syncing: dict[ConsumeQueue, int] = {}
        """The same for the queues that a sync works on."""
        self._new: dict[ConsumeQueue, None] = {}
        """Queues whose names no sync has covered."""
        self._pinned_count = 0
        """Files of both; the active file of a queue that is in both is counted once."""
        self.memories = MemoryBudget()
        self._pinned_count_max = max(1, mapped_file_count_max * 7 // 8)

    @property
    def has_room(self) -> bool:
        """Whether one more queue may be written to before the dirty queues are synced."""
        return not self._pinned_count or self._pinned_count < self._pinned_count_max

    def note(self, queue: ConsumeQueue, old_file_count: int) -> None:
        """Count the files with unsynced bytes of a queue that was written to. It had `old_file_count` files before."""
        if queue.is_in_memory:
            self._dirty.setdefault(queue, 0)
            return
        known = self._dirty.get(queue, 0)
        self._dirty[queue] = max(1, (known or min(1, old_file_count)) + queue.file_count - old_file_count)
        is_active_pinned = known == 0 and self._syncing.get(queue, 0) > 0
        self._pinned_count += self._dirty[queue] - known - is_active_pinned

    def may_pin(self, queue: ConsumeQueue, unit_count: int) -> bool:
        """Return whether the file of a queue may get unsynced units. It must have room if no more may be pinned."""
        return self.has_room or (self._is_pinned(queue) and not queue.lacks_room(unit_count))

    def _is_pinned(self, queue: ConsumeQueue) -> bool:
        return self._dirty.get(queue, 0) > 0

    def note_new(self, queue: ConsumeQueue) -> None:
        """Record a queue whose first file, or the directories above it, were just created."""
        self._new[queue] = None

    def take_new(self) -> list[ConsumeQueue]:
        """Return the new queues, which are no longer new then. The caller syncs their names (`sync_names`)."""
        new, self._new = list(self._new), {}
        return new

    def begin_sync(self, page_count_min: int) -> list[ConsumeQueue]:
        """Return the queues with at least this many dirty pages (0: all changed queues). They are not dirty then.

        The caller syncs them, and calls `mark_synced` before the next sync begins.
        """
        assert not self._syncing
        chosen = [queue for queue in self._dirty if queue.dirty_page_count >= page_count_min]
        self._syncing = {queue: self._dirty.pop(queue) for queue in chosen}
        return chosen

    def mark_synced(self) -> None:
        """Record that the queues of the last `begin_sync` are synced, and drop their units from memory."""
        for queue, file_count in self._syncing.items():
            self._pinned_count -= file_count - (file_count > 0 and self._is_pinned(queue))
            if queue.drop_synced():
                self._dirty.setdefault(queue, 0)
        self._syncing = {}

    def drop(self, queue: ConsumeQueue) -> None:
        """Drop a queue that does not exist any more. No sync may run."""
        assert not self._syncing
        self._new.pop(queue, None)
        self._pinned_count -= self._dirty.pop(queue, 0)

    def clear(self) -> None:
        """Drop all queues, also the queues of a failed sync."""
        self._dirty, self._syncing, self._new, self._pinned_count = {}, {}, {}, 0
