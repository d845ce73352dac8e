# SPDX-License-Identifier: Apache-2.0
"""The findings of an inspection of a store's file, and a segment for inspections."""

from pathlib import Path

from cli.inspect.inspection import Finding, Inspection
from cli.inspect.store import inspect_file
from libs.formats.records import record
from tests.support.records import IPV6_BORN, IPV6_STORE, encoded

BASE = 3 * 2**30
TAIL_SIZE_BYTES = 400


def findings_in(inspection: Inspection) -> list[Finding]:
    """Run an inspection to its end, and return its findings without its items."""
    return [step for step in inspection if isinstance(step, Finding)]


def segment_path(folder: Path, data: bytes) -> Path:
    """A segment file of this content in RocketMQ's layout."""
    path = folder / "commitlog" / f"{BASE:020d}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def findings_of(path: Path) -> list[Finding]:
    """The findings of the inspection of a file."""
    return findings_in(inspect_file(path, limit=0))


def good_segment(*, end: str, crc_property: bool = True) -> tuple[bytes, list[int]]:
    """Five records of different shape with the given end of the segment, and the start of each record."""
    shapes: list[dict[str, object]] = [
        {"topic": "first"},
        {"topic": "second", "properties": b"KEYS\x01a b"},
        {"topic": "t" * 130, "version": 2, "body": b""},
        {"topic": "fourth", "born_host": IPV6_BORN, "store_host": IPV6_STORE, "body": bytes(range(200))},
        {"topic": "fifth", "properties": b""},
    ]
    data, starts = b"", []
    for shape in shapes:
        starts.append(len(data))
        data += encoded(BASE + len(data), crc_property=crc_property, **shape)
    if end == "blank":
        data += record.encode_blank(TAIL_SIZE_BYTES) + encoded(BASE)[: TAIL_SIZE_BYTES - 8]
        data = data.ljust(
            starts[-1] + len(encoded(BASE, crc_property=crc_property, **shapes[-1])) + TAIL_SIZE_BYTES, b"\0"
        )
    elif end == "unwritten":
        data += bytes(TAIL_SIZE_BYTES)
    return data, starts
