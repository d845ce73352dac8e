# SPDX-License-Identifier: Apache-2.0
"""The three kinds of offset and the names of the files that they live in. Spec: docs/formats/commit_log.md section 2.

A physical offset counts bytes from the start of the whole log, a segment position bytes inside one file, and a queue
offset units of one consume queue. A file is named by the physical offset of its first byte (in a consume queue: by the
byte position of its first unit), so the name alone says what is inside.
"""

import re
from typing import NewType

from libs.formats.errors import BadField

PhysicalOffset = NewType("PhysicalOffset", int)
SegmentPosition = NewType("SegmentPosition", int)
QueueOffset = NewType("QueueOffset", int)

FILE_NAME_DIGIT_COUNT = 20
OFFSET_MAX = 2**63 - 1

_NAME = re.compile(r"[0-9]{20}", re.ASCII)


def segment_base(physical_offset: int, segment_size_bytes: int) -> PhysicalOffset:
    """Physical offset of the first byte of the segment that holds this one."""
    assert physical_offset >= 0
    assert segment_size_bytes > 0
    return PhysicalOffset(physical_offset - physical_offset % segment_size_bytes)


def file_name(base: int) -> str:
    """Name of the file whose first byte has this offset: 20 decimal digits."""
    assert 0 <= base <= OFFSET_MAX
    return f"{base:0{FILE_NAME_DIGIT_COUNT}d}"


def is_file_name(name: str) -> bool:
    """Whether `parse_file_name` takes the name."""
    return _NAME.fullmatch(name) is not None and int(name) <= OFFSET_MAX


def parse_file_name(name: str) -> int:
    """Offset of the first byte of a file of this name; raises BadField if it is not 20 digits below 2**63."""
    if not is_file_name(name):
        raise BadField(position=0, reason=f"{name[:40]!r} is not a file name of 20 digits", field="file name")
    return int(name)
