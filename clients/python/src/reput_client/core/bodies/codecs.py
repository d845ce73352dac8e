# SPDX-License-Identifier: Apache-2.0
"""Codecs: the containers in which RocketMQ's clients put a body, and the libraries that make and open them.

A zlib stream, an LZ4 frame, a Zstandard frame (RocketMQ 5.3, package org.apache.rocketmq.common.compression). All three
libraries open a container in the same way, see Decompressor.
"""

import sys
import zlib
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

Compression: TypeAlias = Literal["none", "zlib", "lz4", "zstd"]


class Levels(NamedTuple):
    """Levels of a codec: a higher one takes longer and makes less."""

    first: int
    last: int
    default: int


LEVELS = {"zlib": Levels(1, 9, 5), "lz4": Levels(0, 16, 0), "zstd": Levels(1, 22, 5)}
"""The defaults are those of RocketMQ's client, which asks all codecs for 5; its LZ4 knows no levels."""


class Decompressor(Protocol):
    """Opens one container, no further than it is asked to."""

    @property
    def eof(self) -> bool:
        """Whether the container has ended."""
        ...

    @property
    def unused_data(self) -> bytes | None:
        """What lies behind its end."""
        ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Return `max_length` bytes at most."""
        ...


def load(codec: str) -> Any:
    """Return the library of a codec. Raises ModuleNotFoundError, which tells what to install."""
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
        # RocketMQ's own reader opens frames of independent blocks alone.
        compressed: bytes = library.compress(body, compression_level=level, block_linked=False)
    else:
        compressed = library.compress(body, level)
    return compressed


def decompressor(codec: str) -> tuple[Decompressor, type[Exception]]:
    """Return what opens one container, and what it raises for a damaged one. Raises ModuleNotFoundError."""
    library = load(codec)
    if codec == "zlib":
        return library.decompressobj(zlib.MAX_WBITS | 32), library.error
    if codec == "lz4":
        return library.LZ4FrameDecompressor(), RuntimeError
    return library.ZstdDecompressor(), library.ZstdError
