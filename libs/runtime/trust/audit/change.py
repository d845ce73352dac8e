# SPDX-License-Identifier: Apache-2.0
"""Change: the values before and after an administrative call, which its servicer notes for the audit line."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from msgspec import Struct

from libs.runtime.trust.audit.line import Value


class Change(Struct):
    """The values before and after a change. None: there is no such value, or it was not noted."""

    before: Value = None
    after: Value = None


_current: ContextVar[Change | None] = ContextVar("change", default=None)


@contextlib.contextmanager
def noting() -> Iterator[Change]:
    """Take the notes of a call within the block."""
    change = Change()
    token = _current.set(change)
    try:
        yield change
    finally:
        _current.reset(token)


def note(*, before: Value = None, after: Value = None) -> None:
    """Note the values of the current call. Without effect for a call that has no audit line."""
    change = _current.get()
    if change is not None:
        change.before, change.after = before, after
