# SPDX-License-Identifier: Apache-2.0
"""Lines are returned as they arrive, with any boundaries of the reads."""

import io
import os
from itertools import chain

import pytest

from cli import input_lines
from cli.input_lines import read_lines


@pytest.mark.parametrize("read_size_bytes", [1, 2, 3, 100])
def test_lines(read_size_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of any size give the same lines; ends are LF or CRLF, other CRs stay, and the last end may lack."""
    monkeypatch.setattr(input_lines, "READ_SIZE_BYTES", read_size_bytes)
    for data, lines in (
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nbc\r\nd", [b"a", b"", b"bc", b"d"]),
        (b"\n", [b""]),
        (b"a\r\r\nb\rc\n\r\r", [b"a\r", b"b\rc", b"\r\r"]),
        (b"\r", [b"\r"]),
        (b"\r\n", [b""]),
        (b"a\r", [b"a\r"]),
    ):
        assert list(chain.from_iterable(read_lines(io.BytesIO(data)))) == lines


def test_a_pause_is_told() -> None:
    """An empty list is returned before a read that would wait, and after all lines that have arrived."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as stream, os.fdopen(write_end, "wb", buffering=0) as writer:
        lines = read_lines(stream)
        assert next(lines) == []
        writer.write(b"a\nb\nc")
        assert next(lines) == [b"a", b"b"]
        assert next(lines) == []
        writer.close()
        assert list(lines) == [[b"c"]]
