# SPDX-License-Identifier: Apache-2.0
"""RecentTopicChanges: the last changes of topics, for followers that have the topics as of an earlier change.

Invariants: the kept changes continue each other, and their counts have no gap; at most CHANGES_BYTES_MAX are kept, the
oldest are dropped first.
Callers: TopicRegistry notes the changes, the streams to followers ask for them.
"""

from collections import deque

from libs.formats.state.topic_journal import TopicChange

CHANGES_BYTES_MAX = 1 << 20
"""Of encoded changes, some thousands. A follower that lacks more gets all topics."""


class RecentTopicChanges:
    """The last changes by their change counts."""

    def __init__(self) -> None:
        self._changes: deque[bytes] = deque()
        self._last_count = 0
        self.size_bytes = 0
        """Bytes of the kept changes."""

    def note(self, change_count: int, change: TopicChange) -> None:
        """Keep the change that led to a change count, which is one more than the count of the change before it."""
        encoded = change.encode()
        assert change_count == self._last_count + 1 or not self._changes
        self._changes.append(encoded)
        self._last_count = change_count
        self.size_bytes += len(encoded)
        while self.size_bytes > CHANGES_BYTES_MAX:
            self.size_bytes -= len(self._changes.popleft())

    def clear(self) -> None:
        """Forget all changes: the topics were replaced."""
        self._changes.clear()
        self.size_bytes = 0

    def since(self, change_count: int) -> bytes | None:
        """Return the changes after a change count, one behind the other as in the journal. None if some are gone."""
        first = change_count - (self._last_count - len(self._changes))
        if not self._changes or not 0 <= first < len(self._changes):
            return None
        return b"".join(list(self._changes)[first:])
