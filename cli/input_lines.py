# SPDX-License-Identifier: Apache-2.0
"""Standard input, and lines of a stream: a line that has arrived is yielded at once, for the writer may pause.

Standard input may be closed from the start (`<&-`): Python has no `sys.stdin` then, so commands ask here.
"""

import io
import select
import sys
from collections.abc import Iterator
from typing import BinaryIO, TextIO, cast

import typer

READ_SIZE_BYTES = 256 << 10
"""A read takes a pipe's whole content; of a file it takes enough for a good batch."""


def standard_input(instead: str) -> TextIO:
    """Return standard input. Raises BadParameter, whose text names the alternative `instead`, if it is closed."""
    stream = cast("TextIO | None", sys.stdin)
    if stream is None:
        raise typer.BadParameter(f"standard input is closed: {instead}")
    return stream


def is_terminal() -> bool:
    """Return whether standard input is a terminal, at which a user can answer."""
    stream = cast("TextIO | None", sys.stdin)
    return stream is not None and stream.isatty()


def read_lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines of each read, without their line ends, and an empty list when the next read may have to wait.

    An end is LF or CRLF; other carriage returns belong to their line. A last line without an end is a line when the
    stream ends. No other code may read the stream.
    """
    reader = cast("io.BufferedReader", stream)
    pieces: list[bytes] = []
    while True:
        if not _has_input(stream):
            yield []
        data = reader.read1(READ_SIZE_BYTES)
        if not data:
            break
        head, separator, tail = data.rpartition(b"\n")
        if not separator:
            pieces.append(data)
            continue
        yield [line.removesuffix(b"\r") for line in b"".join([*pieces, head]).split(b"\n")]
        pieces = [tail]
    if last := b"".join(pieces):
        yield [last]


def _has_input(stream: BinaryIO) -> bool:
    """Return False if a read would wait now."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except io.UnsupportedOperation:  # bytes in memory
        return True
