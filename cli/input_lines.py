# SPDX-License-Identifier: Apache-2.0
"""Lines of a stream as they come: what has arrived is handed out at once, because whoever writes it may pause."""

import io
import select
from collections.abc import Iterator
from typing import BinaryIO, cast

READ_SIZE_BYTES = 256 << 10
"""One read takes a pipe's whole content; of a file it takes enough for a good batch."""


def read_lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines of each read, without their ends, and an empty list when the next read may have to wait.

    A last line without an end is a line when the stream ends. Nobody else may read the stream.
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
        yield [line.rstrip(b"\r") for line in b"".join([*pieces, head]).split(b"\n")]
        pieces = [tail]
    if last := b"".join(pieces).rstrip(b"\r"):
        yield [last]


def _has_input(stream: BinaryIO) -> bool:
    """Return False if a read would wait now."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except io.UnsupportedOperation:  # bytes in memory
        return True
