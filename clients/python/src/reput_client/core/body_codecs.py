# SPDX-License-Identifier: Apache-2.0
"""Codecs: the compressed containers of bodies that RocketMQ's clients use, and the libraries that make and open them.

A zlib stream, an LZ4 frame, a Zstandard frame (RocketMQ 5.3, package org.apache.rocketmq.common.compression). All three
libraries open a container in the same way: see Decompressor.
"""

import sys
import zlib
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

Compression: TypeAlias = Literal["none", "zlib", "lz4", "zstd"]


class Levels(NamedTuple):
    """Levels of a codec: a higher level takes longer and gives a smaller result."""

    first: int
    last: int
    default: int


LEVELS = {"zlib": Levels(1, 9, 5), "lz4": Levels(0, 16, 0), "zstd": Levels(1, 22, 5)}
"""The defaults are the levels of RocketMQ's client, which uses 5 for all codecs; its LZ4 has no levels."""


class Decompressor(Protocol):
    """Inflates a container, up to a limit of bytes."""

    @property
    def eof(self) -> bool:
        """Whether the container has ended."""
        ...

    @property
    def unused_data(self) -> bytes | None:
        """The bytes behind the container's end."""
        ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Return `max_length` bytes at most."""
        ...


def load(codec: str) -> Any:
    """Return the library of a codec. Raises ModuleNotFoundError, whose text names the package to install."""
    if codec == "zlib":
        return zlib
    try:
        if codec == "lz4":
            import lz4.frame as library
        elif sys.version_info >= (3, 14):
            from compression import zstd as library
        else:
            from backports import zstd as library
    except ModuleNotFoundError as error:
        package = "lz4" if codec == "lz4" else "backports.zstd"
        text = f"{codec} bodies need the package {package}: pip install 'reput-client[compression]'"
        raise ModuleNotFoundError(text, name=error.name) from None
    return library


def compress(codec: str, body: bytes, level: int) -> bytes:
    """Return a body in its container. Raises ModuleNotFoundError as `load` does."""
    library = load(codec)
    if codec == "lz4":
        # RocketMQ's own reader opens only frames of independent blocks.
        compressed: bytes = library.compress(body, compression_level=level, block_linked=False)
    else:
        compressed = library.compress(body, level)
    return compressed


def decompressor(codec: str) -> tuple[Decompressor, type[Exception]]:
    """Return a decompressor of a container, and its exception for damaged bytes. Raises ModuleNotFoundError."""
    library = load(codec)
    if codec == "zlib":
        return library.decompressobj(zlib.MAX_WBITS | 32), library.error
    if codec == "lz4":
        return library.LZ4FrameDecompressor(), RuntimeError
    return library.ZstdDecompressor(), library.ZstdError
