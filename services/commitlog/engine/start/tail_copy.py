# SPDX-License-Identifier: Apache-2.0
"""What becomes of bytes that a log loses: they are kept aside, in `reput/cut`."""

import contextlib

from libs.formats import store_layout
from libs.log import tail_search
from libs.machine.fs import Fs
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig

COPY_CHUNK_BYTES = 16 << 20


def copy_tail(fs: Fs, config: CommitLogConfig, chain: SegmentChain, end: int, epoch: int) -> tuple[int, str]:
    """Copy what will be cut off, without the zeros behind it, to a file for each segment. Returns size and first file.

    The names tell the epoch that begins with the cut: a start that died while it cut leaves less to copy for the next
    one, whose copy must not take the place of the first.
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
            with contextlib.suppress(OSError):  # a half copy would only take space from the next attempt
                fs.remove(path)
            raise
        copied_bytes += content_end - start
        first_path = first_path or str(path)
    return copied_bytes, first_path
