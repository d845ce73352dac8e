# SPDX-License-Identifier: Apache-2.0
"""UnsyncedFiles: which queues have bytes or names that no sync has covered, and how many files must stay mapped for it.

Invariants: those and the ones that a sync is at work on are at most 7/8 of what may be mapped, however many queues
there are; queues come in the order in which they were written to, so that a run can be repeated exactly.
Callers: the event loop's thread.
"""

from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.errors import SyncNeeded


class UnsyncedFiles:
    """Those of one store."""

    def __init__(self, mapped_file_count_max: int) -> None:
        self._dirty: dict[ConsumeQueue, int] = {}
        """How many files of each have unsynced bytes at most."""
        self._syncing: dict[ConsumeQueue, int] = {}
        """The same of those that a sync is at work on."""
        self._new: dict[ConsumeQueue, None] = {}
        """Queues whose names no sync has covered."""
        self._pinned_count = 0
        """Files of both; the active file of a queue that is in both counts once."""
        self._pinned_count_max = max(1, mapped_file_count_max * 7 // 8)

    def check_room(self) -> None:
        """Raise SyncNeeded if all that `begin_sync` gives must be synced before more is written."""
        if self._pinned_count >= self._pinned_count_max:
            raise SyncNeeded

    def note(self, queue: ConsumeQueue, old_file_count: int) -> None:
        """Count the files with unsynced bytes of a queue that was written to, and that had so many files before."""
        known = self._dirty.get(queue, 0)
        self._dirty[queue] = max(1, (known or min(1, old_file_count)) + queue.file_count - old_file_count)
        is_active_pinned = known == 0 and queue in self._syncing
        self._pinned_count += self._dirty[queue] - known - is_active_pinned

    def note_new(self, queue: ConsumeQueue) -> None:
        """Note a queue whose first file, or the directories above it, were just made."""
        self._new[queue] = None

    def take_new(self) -> list[ConsumeQueue]:
        """Return the new queues, and stop counting them as new. The caller syncs their names (`sync_names`)."""
        new, self._new = list(self._new), {}
        return new

    def begin_sync(self, page_count_min: int) -> list[ConsumeQueue]:
        """Return the queues with at least so many dirty pages (0: all that changed) and stop counting them as dirty.

        The caller syncs them, and tells by `mark_synced` before the next sync begins.
        """
        assert not self._syncing
        chosen = [queue for queue in self._dirty if queue.dirty_page_count >= page_count_min]
        self._syncing = {queue: self._dirty.pop(queue) for queue in chosen}
        return chosen

    def mark_synced(self) -> None:
        """Note that the queues of the last `begin_sync` are synced."""
        for queue, file_count in self._syncing.items():
            self._pinned_count -= file_count - (queue in self._dirty)
        self._syncing = {}

    def drop(self, queue: ConsumeQueue) -> None:
        """Forget a queue that is not there any more. No sync may be at work."""
        assert not self._syncing
        self._new.pop(queue, None)
        self._pinned_count -= self._dirty.pop(queue, 0)

    def clear(self) -> None:
        """Forget all of them, those that a sync has failed for, too."""
        self._dirty, self._syncing, self._new, self._pinned_count = {}, {}, {}, 0
