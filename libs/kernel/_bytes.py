# SPDX-License-Identifier: Apache-2.0
"""Byte primitives of the uncompiled kernel: the plain Python twin of _bytes.pxd, same names, same results.

The callers check bounds; these functions do not. Numbers are big-endian and signed. Callers: the kernel modules only.
"""

from typing import Any

Source = memoryview
"""The buffer that the kernel reads; a pointer in the compiled kernel."""
Target = memoryview
"""The buffer that the kernel writes; a pointer in the compiled kernel."""


def source_of(buffer: Any) -> memoryview:
    """Return the bytes of any contiguous buffer, for reading."""
    return memoryview(buffer).cast("B")


def target_of(buffer: Any) -> memoryview:
    """Return the bytes of any contiguous buffer, for writing. Raises ValueError if it is read-only."""
    view = memoryview(buffer).cast("B")
    if view.readonly:
        raise ValueError("the buffer is read-only")
    return view


def get_int16(source: memoryview, at: int) -> int:
    """Return a signed 16-bit number."""
    return int.from_bytes(source[at : at + 2], "big", signed=True)


def get_int32(source: memoryview, at: int) -> int:
    """Return a signed 32-bit number."""
    return int.from_bytes(source[at : at + 4], "big", signed=True)


def get_int64(source: memoryview, at: int) -> int:
    """Return a signed 64-bit number."""
    return int.from_bytes(source[at : at + 8], "big", signed=True)


def put_int16(target: memoryview, at: int, number: int) -> None:
    """Write the low 16 bits of a number."""
    target[at : at + 2] = (number & 0xFFFF).to_bytes(2, "big")


def put_int32(target: memoryview, at: int, number: int) -> None:
    """Write the low 32 bits of a number."""
    target[at : at + 4] = (number & 0xFFFFFFFF).to_bytes(4, "big")


def put_int64(target: memoryview, at: int, number: int) -> None:
    """Write the low 64 bits of a number."""
    target[at : at + 8] = (number & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")


def copy(target: memoryview, target_at: int, source: memoryview, source_at: int, size: int) -> None:
    """Copy `size` bytes."""
    target[target_at : target_at + size] = source[source_at : source_at + size]


def put_text(target: memoryview, at: int, text: bytes, size: int) -> None:
    """Write the first `size` bytes of a text."""
    target[at : at + size] = text[:size]


def equal(left: memoryview, left_at: int, right: memoryview, right_at: int, size: int) -> bool:
    """Return whether `size` bytes are the same at both places."""
    return left[left_at : left_at + size] == right[right_at : right_at + size]


def matches(source: memoryview, at: int, text: bytes, size: int) -> bool:
    """Return whether the bytes at a place are the first `size` bytes of a text."""
    return source[at : at + size] == text[:size]


def find(source: memoryview, start: int, end: int, byte: int) -> int:
    """Return the place of the first such byte in [start, end), or `end`."""
    found = bytes(source[start:end]).find(byte)
    return end if found < 0 else start + found


def is_ascii8(source: memoryview, at: int) -> bool:
    """Return whether the eight bytes at a place are all below 0x80."""
    return bytes(source[at : at + 8]).isascii()


def new_bytes(size: int) -> bytearray:
    """Return the room for a bytes object. The kernel fills it before any other code sees it."""
    return bytearray(size)


def new_bytes_target(made: bytearray) -> memoryview:
    """Return the buffer to write the bytes to."""
    return memoryview(made)


def finish_bytes(made: bytearray) -> bytes:
    """Return the filled bytes object."""
    return bytes(made)
