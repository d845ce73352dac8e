# SPDX-License-Identifier: Apache-2.0
"""Abort file: the process that uses a store, or used it until it was killed. Spec: docs/formats/store_checkpoint.md.

Text: the process id, then the words that apply, separated by blanks, and a newline at the end. RocketMQ writes no
newline, and 4.9 writes an empty file.
"""

from msgspec import Struct

_FOLLOWS, _OWED, _BEHIND = b"follows", b"owed", b"behind"
_PROCESS_ID_DIGITS_MAX = 19


class Abort(Struct, frozen=True):
    """The content of the file."""

    process_id: int | None = None
    follows: bool = False
    """The log is a copy of another log."""
    is_owed: bool = False
    """RocketMQ still has to recover files that only RocketMQ can recover."""
    is_behind: bool = False
    """The log was stopped in order while its queues lacked records, so RocketMQ must recover as after a crash."""
    is_of_rocketmq: bool = False
    """RocketMQ wrote the file, so RocketMQ's stop was unclean."""
    noise: bytes = b""
    """The text in the place of a process id."""

    @property
    def is_clean(self) -> bool:
        """Whether the stop was clean, and the file exists only to make RocketMQ recover."""
        return self in (Abort(is_owed=True), Abort(is_behind=True), Abort(is_owed=True, is_behind=True))


def encode(abort: Abort) -> bytes:
    """Return the whole file in Reput's form."""
    assert not abort.is_of_rocketmq
    assert not abort.noise
    number = [] if abort.process_id is None else [b"%d" % abort.process_id]
    words = ((_FOLLOWS, abort.follows), (_OWED, abort.is_owed), (_BEHIND, abort.is_behind))
    return b" ".join((*number, *(word for word, applies in words if applies))) + b"\n"


def decode(data: bytes) -> Abort:
    """Return the content of a file of Reput or of RocketMQ."""
    words = data.split()
    rest = b" ".join(word for word in words if word not in (_FOLLOWS, _OWED, _BEHIND))
    is_number = rest.isdigit() and len(rest) <= _PROCESS_ID_DIGITS_MAX
    return Abort(
        process_id=int(rest) if is_number else None,
        follows=_FOLLOWS in words,
        is_owed=_OWED in words,
        is_behind=_BEHIND in words,
        is_of_rocketmq=not data.endswith(b"\n"),
        noise=b"" if is_number else rest,
    )
