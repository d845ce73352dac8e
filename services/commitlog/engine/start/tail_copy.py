# SPDX-License-Identifier: Apache-2.0
"""Copies of the bytes that a log loses, in `reput/cut`."""

import contextlib

from libs.formats import store_layout
from libs.log import tail_search
from libs.machine.fs import Fs
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig

COPY_CHUNK_BYTES = 16 << 20


def copy_tail(fs: Fs, config: CommitLogConfig, chain: SegmentChain, end: int, epoch: int) -> tuple[int, str]:
    """Copy the bytes that will be truncated, without trailing zeros, to a file for each segment.

    Returns the size and the path of the first file. The file names contain the epoch that begins with the cut. After a
    crash during the cut, fewer bytes are left for the next start, so its copy must not overwrite the first copy.
    """
    directory = config.data_dir / store_layout.CUT
    fs.make_directory(directory)
    copied_bytes, first_path = 0, ""
    for segment in chain.segments:
        start = max(end - segment.base_physical_offset, 0)
        if start >= segment.size_bytes:
            continue
        content_end = tail_search.content_end(segment, start)
        if content_end == start:
            continue
        path = directory / store_layout.cut_name(segment.base_physical_offset + start, epoch)
        if fs.exists(path):
            fs.remove(path)
        try:
            for at in range(start, content_end, COPY_CHUNK_BYTES):
                fs.append(path, bytes(segment.buffer[at : min(at + COPY_CHUNK_BYTES, content_end)]))
        except OSError:
            with contextlib.suppress(OSError):  # a partial copy would only take space from the next attempt
                fs.remove(path)
            raise
        copied_bytes += content_end - start
        first_path = first_path or str(path)
    return copied_bytes, first_path
