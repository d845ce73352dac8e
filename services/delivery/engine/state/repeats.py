# SPDX-License-Identifier: Apache-2.0
"""Repeats: what the last settle_requests were answered, so that one whose answer was lost gets it again.

They last as long as the process, also when it reads the journal anew because an append failed, or was not durable in
time: the callers of then repeat what they wished. Nothing of it is in the journal: a repetition that comes late, or to
the next process, hears that its handle is outdated. Wishes are known by their hashes of 64 bits.
Callers: the event loop's thread. Memory: COUNT_MAX answers, some 100 bytes each.
"""

from collections import OrderedDict
from collections.abc import Hashable

COUNT_MAX = 100_000


class Repeats:
    """See the module."""

    def __init__(self) -> None:
        self._answers: OrderedDict[int, str] = OrderedDict()

    def note(self, settle_request: Hashable, answer: str) -> None:
        """Take note of the handle in the answer to a settle_request, whose own handle is outdated from now on."""
        self._answers[hash(settle_request)] = answer
        if len(self._answers) > COUNT_MAX:
            self._answers.popitem(last=False)

    def answer(self, settle_request: Hashable) -> str | None:
        """Return the handle in the answer to the same settle_request before, None if there was none."""
        return self._answers.get(hash(settle_request))
