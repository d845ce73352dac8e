# SPDX-License-Identifier: Apache-2.0
"""Abort file: who uses a store, or did until it was killed. Spec: docs/formats/store_checkpoint.md.

Text: the process id, then the words that hold, with blanks between and a newline behind them. RocketMQ writes no
newline, and 4.9 nothing at all.
"""

from dataclasses import dataclass

_FOLLOWS, _OWED = b"follows", b"owed"
_PROCESS_ID_DIGITS_MAX = 19


@dataclass(frozen=True, slots=True)
class Abort:
    """What the file says."""

    process_id: int | None = None
    follows: bool = False
    """The log is a copy of another one."""
    is_owed: bool = False
    """RocketMQ has yet to recover what only it can."""
    is_of_rocketmq: bool = False
    """RocketMQ wrote the file, so it was its stop that was unclean."""
    noise: bytes = b""
    """What stands there in place of a process id."""

    @property
    def is_clean(self) -> bool:
        """Whether the file is there for what RocketMQ is owed alone, and the stop was in order."""
        return self == Abort(is_owed=True)


def encode(abort: Abort) -> bytes:
    """Return the whole file as Reput writes it."""
    assert not abort.is_of_rocketmq
    assert not abort.noise
    number = [] if abort.process_id is None else [b"%d" % abort.process_id]
    return b" ".join((*number, *[_FOLLOWS] * abort.follows, *[_OWED] * abort.is_owed)) + b"\n"


def decode(data: bytes) -> Abort:
    """Return what the file says, whoever wrote it."""
    words = data.split()
    rest = b" ".join(word for word in words if word not in (_FOLLOWS, _OWED))
    is_number = rest.isdigit() and len(rest) <= _PROCESS_ID_DIGITS_MAX
    return Abort(
        process_id=int(rest) if is_number else None,
        follows=_FOLLOWS in words,
        is_owed=_OWED in words,
        is_of_rocketmq=not data.endswith(b"\n"),
        noise=b"" if is_number else rest,
    )
