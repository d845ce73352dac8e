# SPDX-License-Identifier: Apache-2.0
"""Repeats: the answers to the last requests to settle, so that a request whose answer was lost gets it again.

The answers are kept as long as the process runs, also when it reads the journal anew because an append failed, or was
not durable in time: then callers repeat their requests. The journal has none of this: a repetition that comes late, or
to the next process, fails because its handle is outdated. Requests are identified by hashes of 64 bits.
Callers: the event loop's thread. Memory: COUNT_MAX answers, some 100 bytes each.
"""

from collections import OrderedDict
from collections.abc import Hashable

COUNT_MAX = 100_000


class Repeats:
    """The answers to the last COUNT_MAX requests to settle."""

    def __init__(self) -> None:
        self._answers: OrderedDict[int, str] = OrderedDict()

    def note(self, settle_request: Hashable, answer: str) -> None:
        """Record the handle in the answer to a request, whose own handle is outdated from now on."""
        self._answers[hash(settle_request)] = answer
        if len(self._answers) > COUNT_MAX:
            self._answers.popitem(last=False)

    def answer(self, settle_request: Hashable) -> str | None:
        """Return the handle in the former answer to the same request, None if there was none."""
        return self._answers.get(hash(settle_request))
