# SPDX-License-Identifier: Apache-2.0
"""Completeness: whether the indexes hold all records that were ever answered from them.

After a crash, a lost tail or a rebuild the indexes are built again from an earlier offset. An answer given meanwhile
would lack messages that a reader has seen before: a queue would end earlier, and a consumer would go back. Calls that
need the indexes are refused until the indexes reach their former end. The rule of a method in the protos tells whether
it needs them.
Invariants: `lose` before anything is dropped; complete again when the indexes reach the end that the log had confirmed
when it was first heard after the loss.
Callers: the event loop's thread. ReputLoop, Indexes and ReputStates change it, and no other module.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from libs.formats.limits import INT64_MAX
from libs.requests.errors import ServiceError
from services.indexer.errors import Incomplete, MessageNotFound

UNKNOWN = INT64_MAX
"""The target after a loss, until the log reports its end."""


class Completeness:
    """The completeness of the indexes. Complete at first, because nothing was answered yet."""

    def __init__(self) -> None:
        self.target_physical_offset = 0
        """The offset at which the indexes are complete again, exclusive; 0 if they are complete."""
        self.changed = asyncio.Event()
        """Set when the indexes are complete and the log was heard, or when indexing has stopped."""
        self.indexed_physical_offset = 0
        """End of the indexed records since the last loss."""
        self._loss_count = 0

    @property
    def is_complete(self) -> bool:
        """Whether calls are answered."""
        return self.target_physical_offset == 0

    def lose(self, target_physical_offset: int = UNKNOWN) -> None:
        """Refuse calls, including running calls, until the indexes reach this offset."""
        assert target_physical_offset >= 0
        self._loss_count += 1
        self.indexed_physical_offset = 0
        self.target_physical_offset = target_physical_offset
        self.changed.clear()

    def hear(self, confirmed_physical_offset: int) -> None:
        """Record the end of the log. It becomes the target of a loss that had no target."""
        if self.target_physical_offset == UNKNOWN:
            self.target_physical_offset = confirmed_physical_offset

    def reach(self, indexed_physical_offset: int, *, is_end: bool) -> None:
        """Record the end of the indexes, and whether they have all records of the log."""
        self.indexed_physical_offset = indexed_physical_offset
        if is_end or indexed_physical_offset >= self.target_physical_offset:
            self.target_physical_offset = 0
            self.changed.set()

    def begin(self) -> int:
        """Return the argument for `verify`. Raises Incomplete."""
        if not self.is_complete:
            target = None if self.target_physical_offset == UNKNOWN else self.target_physical_offset
            raise Incomplete(self.indexed_physical_offset, target=target)
        return self._loss_count

    def verify(self, begun: int) -> None:
        """Raise Incomplete if a loss happened since `begin`, because the answer may lack records."""
        if begun != self._loss_count:
            self.begin()
            raise Incomplete(self.indexed_physical_offset, target=None)

    @contextlib.contextmanager
    def finding(self) -> Iterator[Callable[[], None]]:
        """Return a context manager for the search of a single message. A found message is valid, even after a loss.

        Raises Incomplete instead of MessageNotFound while the indexes are incomplete: they may lack the message.
        """
        try:
            yield lambda: None
        except MessageNotFound:
            self.begin()
            raise

    def answering(self) -> "CompletenessCheck":
        """Return a context manager for reading the indexes. Raises Incomplete, before or after the read.

        It provides a function that may be called in between, before a part of the answer is sent.
        """
        return CompletenessCheck(self, self.begin())


class CompletenessCheck:
    """The context manager of an answer. Thousands of waiting calls hold such an object, so it is small."""

    __slots__ = ("_begun", "_completeness")

    def __init__(self, completeness: Completeness, begun: int) -> None:
        self._completeness = completeness
        self._begun = begun

    def __enter__(self) -> Callable[[], None]:
        return self._verify

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, ServiceError):
            self._verify()

    def _verify(self) -> None:
        self._completeness.verify(self._begun)
