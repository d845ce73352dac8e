# SPDX-License-Identifier: Apache-2.0
"""Completeness: whether the indexes hold all that was ever answered from them.

After a crash, a lost tail or a rebuild they are built again from further back. An answer given meanwhile would lack
messages that a reader has seen before: a queue would end earlier, and a consumer would be sent back. So until the
indexes are where they were, calls that need them are refused: what they need is said where they are registered (rpc).
Invariants: `lose` before anything is dropped; complete again when the indexes reach what the log had confirmed when it
was first heard after the loss. Callers: the event loop's thread; ReputLoop is the only one that changes it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from libs.formats.limits import INT64_MAX
from libs.requests.errors import ServiceError
from services.indexer.errors import Incomplete, MessageNotFound

UNKNOWN = INT64_MAX
"""Target of a loss before the log has said where it ends."""


class Completeness:
    """Complete when made: nothing was answered yet."""

    def __init__(self) -> None:
        self.target_physical_offset = 0
        """Where the indexes are complete again, exclusive; 0 if they are."""
        self.changed = asyncio.Event()
        """Set when the indexes are complete and the log was heard, or nobody builds them any more."""
        self.indexed_physical_offset = 0
        """How far they are since the last loss."""
        self._loss_count = 0

    @property
    def is_complete(self) -> bool:
        """Whether calls are answered."""
        return self.target_physical_offset == 0

    def lose(self, target_physical_offset: int = UNKNOWN) -> None:
        """Refuse calls, those at work too, until the indexes reach this offset."""
        assert target_physical_offset >= 0
        self._loss_count += 1
        self.indexed_physical_offset = 0
        self.target_physical_offset = target_physical_offset
        self.changed.clear()

    def hear(self, confirmed_physical_offset: int) -> None:
        """Note where the log ends, which is the target of a loss that had none."""
        if self.target_physical_offset == UNKNOWN:
            self.target_physical_offset = confirmed_physical_offset

    def reach(self, indexed_physical_offset: int, *, is_end: bool) -> None:
        """Note how far the indexes are, and whether that is all that the log has."""
        self.indexed_physical_offset = indexed_physical_offset
        if is_end or indexed_physical_offset >= self.target_physical_offset:
            self.target_physical_offset = 0
            self.changed.set()

    def begin(self) -> int:
        """Return what `verify` is to be told. Raises Incomplete."""
        if not self.is_complete:
            target = None if self.target_physical_offset == UNKNOWN else self.target_physical_offset
            raise Incomplete(self.indexed_physical_offset, target=target)
        return self._loss_count

    def verify(self, begun: int) -> None:
        """Raise Incomplete if something was lost since `begin`, because what was found may be too little."""
        if begun != self._loss_count:
            self.begin()
            raise Incomplete(self.indexed_physical_offset, target=None)

    @contextlib.contextmanager
    def finding(self) -> Iterator[Callable[[], None]]:
        """Stand around a look for one thing: what is found counts, whatever is lost meanwhile.

        Raises Incomplete instead of MessageNotFound: nobody can say that the rest is not there.
        """
        try:
            yield lambda: None
        except MessageNotFound:
            self.begin()
            raise

    def answering(self) -> "Answering":
        """Stand around whatever is found in the indexes, or is missed there. Raises Incomplete, before or after it.

        What it gives may be called in between, before a part of the answer leaves.
        """
        return Answering(self, self.begin())


class Answering:
    """One answer: a block that thousands of waiting calls stand in, so it is one small object."""

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
