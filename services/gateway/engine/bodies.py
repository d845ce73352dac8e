# SPDX-License-Identifier: Apache-2.0
"""Bodies: inflates compressed bodies, since RocketMQ 5's clients read only some of the compression formats.

A body that stays small is inflated in the event loop, which runs other work after each. Larger bodies are inflated by a
single thread, so a gateway spends at most this thread on them, for any number of large bodies. No body becomes larger
than `size_bytes_max`.
Callers: the event loop's thread. Memory: `size_bytes_max` for each body that a caller waits for.
"""

import asyncio
import sys
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import lz4.frame
from msgspec import Struct

from libs.formats.records.record import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK
from libs.machine.workers import workers
from services.gateway.engine.messages import digest_of
from services.gateway.errors import Refused

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ZLIB_FLAGS = COMPRESSED_FLAG | 0x300
"""System flags of a body in a zlib stream. All readers of RocketMQ's records know this format."""
GZIP_MAGIC = b"\x1f\x8b"
AT_ONCE_SIZE_BYTES_MAX = 64 << 10
"""A body of at most this size, before and after, is inflated in the event loop. This takes less than 0.5 ms."""
ANY_HEADER = zlib.MAX_WBITS | 32
"""A zlib stream or a gzip file: clients call both GZIP."""

_CODECS: dict[int, tuple[str, Callable[[], Any], type[Exception]]] = {
    0x000: ("zlib", lambda: zlib.decompressobj(ANY_HEADER), zlib.error),
    0x100: ("lz4", lz4.frame.LZ4FrameDecompressor, RuntimeError),
    0x200: ("zstd", zstd.ZstdDecompressor, zstd.ZstdError),
    0x300: ("zlib", lambda: zlib.decompressobj(ANY_HEADER), zlib.error),
}
"""By the type in the system flag: the codec's name, its decompressor, and the decompressor's error for damaged data."""

T = TypeVar("T")


class BadBodyError(Exception):
    """A body can't be inflated. The text says why."""


class BodyTooLargeError(BadBodyError):
    """A body becomes too large when it is inflated."""


class Body(Struct, frozen=True):
    """A body as a consumer gets it."""

    data: bytes
    digest: str
    fault: str = ""
    """Why the body is still compressed. Empty if the body is plain."""


class Bodies:
    """The inflater of a gateway. `close` it."""

    def __init__(self, *, size_bytes_max: int) -> None:
        self.size_bytes_max = size_bytes_max
        self._thread = workers().one_thread("bodies")

    def close(self) -> None:
        """End the thread after its current body, without a wait."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def inflated(self, data: bytes, sys_flag: int) -> Body:
        """Return a stored body inflated. A body that can't be inflated is returned as stored, with the reason."""
        fault = ""
        if sys_flag & COMPRESSED_FLAG:
            try:
                return await self._done(len(data), lambda most: _opened(data, sys_flag, most))
            except BadBodyError as error:
                fault = str(error)
        return Body(data, digest_of(data), fault)

    async def packed(self, data: bytes) -> bytes:
        """Return a body that its sender calls GZIP, as a zlib stream. Raises Refused if it can't be inflated."""
        try:
            return await self._done(len(data), lambda most: _repacked(data, most))
        except BodyTooLargeError as error:
            raise Refused("MESSAGE_BODY_TOO_LARGE", str(error)) from None
        except BadBodyError as error:
            raise Refused("MESSAGE_CORRUPTED", str(error)) from None

    async def _done(self, size_bytes: int, work: Callable[[int], T]) -> T:
        """Return the result of work on a body. Work on a small body runs here, work on a larger body in the thread."""
        at_once = min(AT_ONCE_SIZE_BYTES_MAX, self.size_bytes_max)
        if size_bytes <= at_once:
            try:
                done = work(at_once)
            except BodyTooLargeError:
                if at_once == self.size_bytes_max:
                    raise
            else:
                await asyncio.sleep(0)  # a request may have many bodies
                return done
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self.size_bytes_max)


def inflate(data: bytes, sys_flag: int, size_bytes_max: int) -> bytes:
    """Return a compressed body inflated. Raises BodyTooLargeError, and BadBodyError for other faults."""
    kind = sys_flag & COMPRESSION_TYPE_MASK
    if kind not in _CODECS:
        raise BadBodyError(f"the compression type {kind >> 8} of the body is none of RocketMQ's, which are 0 to 3")
    codec, container_of, damage = _CODECS[kind]
    container = container_of()
    try:
        found: bytes = container.decompress(data, size_bytes_max + 1)
    except damage as error:
        raise BadBodyError(f"the {len(data)} bytes of the body are no whole {codec} body: {error}") from None
    if len(found) > size_bytes_max:
        text = f"the {len(data)} bytes of the body become more than {size_bytes_max} when {codec} inflates them"
        raise BodyTooLargeError(f"{text}: the limit is the gateway's inflated_size_bytes_max")
    if not container.eof or container.unused_data:
        raise BadBodyError(f"the {len(data)} bytes of the body are not exactly one {codec} body")
    return found


def _opened(data: bytes, sys_flag: int, size_bytes_max: int) -> Body:
    found = inflate(data, sys_flag, size_bytes_max)
    return Body(found, digest_of(found))


def _repacked(data: bytes, size_bytes_max: int) -> bytes:
    found = inflate(data, COMPRESSED_FLAG, size_bytes_max)
    if not found:
        raise Refused("MESSAGE_BODY_EMPTY", "the message has an empty body in its compressed one")
    return zlib.compress(found) if data.startswith(GZIP_MAGIC) else data
