# SPDX-License-Identifier: Apache-2.0
"""The settlements of several callers that share a call: which of them the next call takes. No I/O."""

from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from reput_client.core.sharing.calls import ENTRY_COUNT_MAX

CALL_COUNT_MAX = 2
"""The second call is sent while the answer to the first call is on its way. Further settlements wait, and share a call.
"""
PATIENCE_S = 0.5
"""A settlement that has waited for so long gets another call: calls that hang must not hold it up."""
SHARED_SIZE_MAX = 256 << 10
"""Bytes of the entries of a shared call, so that large handles of a caller do not make the call too large."""


class Settlement:
    """The settlement of a single caller: at most ENTRY_COUNT_MAX entries, as `calls.entries` makes them."""

    __slots__ = ("entries", "size")

    def __init__(self, entries: Sequence[bytes]) -> None:
        self.entries = entries
        self.size = sum(map(len, entries))

    @property
    def is_given_up(self) -> bool:
        """Whether the caller does not wait any more."""
        return False


T = TypeVar("T", bound=Settlement)


def take(waiting: deque[T]) -> list[T]:
    """Remove and return the settlements of the next call, in their order. Drops settlements that are given up."""
    some: list[T] = []
    count = size = 0
    while waiting:
        if waiting[0].is_given_up:
            waiting.popleft()
            continue
        count += len(waiting[0].entries)
        size += waiting[0].size
        if some and (count > ENTRY_COUNT_MAX or size > SHARED_SIZE_MAX):
            break
        some.append(waiting.popleft())
    return some
