# SPDX-License-Identifier: Apache-2.0
"""check_filters: the filters of index files, compared with every entry of their index files.

A filter that is damaged or of another index file costs time only: the Indexer does not use it, and makes it again.
A filter that denies a key of its index file would hide messages. Layout: docs/formats/index_filter.md.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from cli.verify.codes import Area
from cli.verify.files import Files
from cli.verify.findings import Report
from libs.formats import store_layout
from libs.formats.errors import FormatError, NewerVersion
from libs.formats.indexes.index_file import ENTRY_ARRAY, ENTRY_SIZE_BYTES, FIRST_ENTRY, entry_position
from libs.formats.state.index_filter import (
    BLOCK_SIZE_BYTES,
    FILTER_HEADER_SIZE_BYTES,
    FilterHeader,
    decode_filter_header,
    encode_header,
)
from libs.kernel.scan.filter_cy import count_held, first_damaged
from libs.machine.fs import TEMPORARY_SUFFIX

CHUNK_ENTRY_COUNT = 1 << 16


def check_filters(files: Files, data_dir: Path, slot_count: int, report: Report) -> None:
    """Check all filters of a store whose index files have so many slots, 0 if that is not known."""
    directory = data_dir / store_layout.INDEX_FILTERS
    if Area.INDEX not in report.areas or not directory.is_dir():
        return
    for path in sorted(directory.iterdir()):
        name, index_path = f"{store_layout.INDEX_FILTERS}/{path.name}", data_dir / store_layout.INDEX / path.name
        try:
            if path.name.endswith(TEMPORARY_SUFFIX):
                report.add("TEMPORARY_FILE", name, "a file that was never finished")
            elif not index_path.is_file():
                report.add("INDEX_FILTER_UNUSED", name, "there is no index file of this name")
            elif slot_count:
                _check(files, path, index_path, slot_count, name, report)
        except OSError as error:
            report.add("FILE_UNREADABLE", name, error.strerror or str(error))


def _check(files: Files, path: Path, index_path: Path, slot_count: int, name: str, report: Report) -> None:
    raw = files.read(path, 0, FILTER_HEADER_SIZE_BYTES)
    try:
        header = decode_filter_header(raw)
    except (FormatError, NewerVersion) as error:
        report.add("INDEX_FILTER_DAMAGED", name, f"{error.field or 'header'}: {error.reason}", position=error.position)
        return
    try:
        is_of_file = encode_header(path.name, partial(files.read, index_path), slot_count) == raw
    except FormatError:
        is_of_file = False  # the check of the index file says what is wrong
    if not is_of_file:
        report.add("INDEX_FILTER_UNUSED", name, "it is of another index file than the one of this name")
        return
    blocks = files.read(path, FILTER_HEADER_SIZE_BYTES, header.file_size_bytes)
    if len(blocks) != BLOCK_SIZE_BYTES * header.block_count:
        message = f"{len(blocks)} bytes of blocks, not {BLOCK_SIZE_BYTES * header.block_count}"
        report.add("INDEX_FILTER_DAMAGED", name, message, position=FILTER_HEADER_SIZE_BYTES)
    elif (number := first_damaged(blocks, header.seed)) >= 0:
        position = FILTER_HEADER_SIZE_BYTES + BLOCK_SIZE_BYTES * number
        report.add("INDEX_FILTER_DAMAGED", name, f"block {number} does not have its check", position=position)
    elif count := _denied_count(files, index_path, slot_count, header, blocks):
        report.add("INDEX_FILTER_DENIES", name, f"it denies {count} keys that the index file has", count=count)


def _denied_count(files: Files, index_path: Path, slot_count: int, header: FilterHeader, blocks: bytes) -> int:
    """Return how many entries of the index file have a key that the filter denies."""
    denied_count, number, end = 0, FIRST_ENTRY, header.index_header.next_entry
    while number < end:
        count = min(CHUNK_ENTRY_COUNT, end - number)
        data = files.read(index_path, entry_position(number, slot_count), count * ENTRY_SIZE_BYTES)
        hashes = np.frombuffer(data, ENTRY_ARRAY)["key_hash"].astype(np.int32)
        denied_count += len(hashes) - count_held(blocks, header.seed, hashes)
        number += count
    return denied_count
