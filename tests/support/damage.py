# SPDX-License-Identifier: Apache-2.0
"""Ways to damage a store on disk: a Target knows where its records, units and entries lie."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from libs.formats import crc
from libs.formats.indexes import index_file
from libs.formats.records import record
from libs.formats.records.record import Record
from libs.formats.state import checksummed
from tests.support.made_store import QUEUE_FILE_SIZE, SEGMENT_SIZE, SLOT_COUNT


class Target:
    """A store to be damaged."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.segments = sorted((root / "commitlog").iterdir())
        self.index_files = sorted((root / "index").iterdir())
        self.records = [found for path in self.segments for found in _records(path)]

    @property
    def end_physical_offset(self) -> int:
        """End of the log."""
        return self.records[-1].physical_offset + self.records[-1].size_bytes

    def write(self, path: Path, position: int, data: bytes) -> None:
        """Overwrite bytes of a file."""
        with path.open("r+b") as file:
            file.seek(position)
            file.write(data)

    def flip(self, path: Path, position: int, bits: int = 0x10) -> None:
        """Change bits of a byte."""
        self.write(path, position, bytes([path.read_bytes()[position] ^ bits]))

    def write_log(self, physical_offset: int, data: bytes) -> None:
        """Overwrite bytes of the log that are within a single segment."""
        path = self.root / "commitlog" / f"{physical_offset - physical_offset % SEGMENT_SIZE:020d}"
        self.write(path, physical_offset % SEGMENT_SIZE, data)

    def raw(self, number: int) -> bytearray:
        """Bytes of a record."""
        found = self.records[number]
        data = (
            self.root / "commitlog" / f"{found.physical_offset - found.physical_offset % SEGMENT_SIZE:020d}"
        ).read_bytes()
        position = found.physical_offset % SEGMENT_SIZE
        return bytearray(data[position : position + found.size_bytes])

    def write_record(self, number: int, at: int, data: bytes) -> None:
        """Overwrite bytes of a record, so that its checksums are wrong; `at` may count from its end."""
        found = self.records[number]
        self.write_log(found.physical_offset + (at if at >= 0 else found.size_bytes + at), data)

    def reseal(self, number: int, at: int, data: bytes, physical_offset: int | None = None) -> None:
        """Overwrite bytes of a record and make its checksum right again; or of a copy of it at another place."""
        raw = self.raw(number)
        if physical_offset is not None:
            raw[28:36] = physical_offset.to_bytes(8, "big")
        raw[at : at + len(data)] = data
        raw[-20:] = crc.crc_property(crc.body_crc(bytes(raw[:-20])))
        self.write_log(self.records[number].physical_offset if physical_offset is None else physical_offset, bytes(raw))

    def queue(self, topic: str = "orders", queue_id: int = 1) -> Path:
        """Directory of a queue."""
        return self.root / "consumequeue" / topic / str(queue_id)

    def write_unit(self, number: int, data: bytes, at: int = 0, queue_id: int = 1) -> None:
        """Overwrite bytes of a unit of a queue of `orders`."""
        position = 20 * number
        base = position - position % QUEUE_FILE_SIZE
        self.write(self.queue(queue_id=queue_id) / f"{base:020d}", position - base + at, data)

    def unit_count(self, topic: str = "orders", queue_id: int = 1) -> int:
        """Records of a queue."""
        return sum((found.topic, found.queue_id) == (topic, queue_id) for found in self.records)

    def write_entry(self, file: int, number: int, data: bytes, at: int = 0) -> None:
        """Overwrite bytes of an index entry."""
        self.write(self.index_files[file], index_file.entry_position(number, SLOT_COUNT) + at, data)

    def entry(self, file: int, number: int) -> index_file.IndexEntry:
        """An index entry."""
        data = self.index_files[file].read_bytes()
        return index_file.decode_entry(data, index_file.entry_position(number, SLOT_COUNT))

    def header(self, file: int) -> index_file.IndexHeader:
        """Header of an index file."""
        return index_file.decode_header(self.index_files[file].read_bytes())

    def used_slot(self, file: int) -> int:
        """Byte position of a slot that is used."""
        data = self.index_files[file].read_bytes()
        return next(at for at in range(40, 40 + 4 * SLOT_COUNT, 4) if any(data[at : at + 4]))

    def edit_snapshot(self, change: Callable[[dict[str, object]], None]) -> None:
        """Change the queue snapshot, with a right checksum."""
        self._edit("queue_offsets", "queue_offsets", change)

    def edit_progress(self, change: Callable[[dict[str, object]], None]) -> None:
        """Change the index progress, with a right checksum."""
        self._edit("index_progress", "index-progress", change)

    def write_log_history(self, **fields: object) -> None:
        """Write the file of the Indexer's knowledge of the log's history."""
        path = self.root / "reput" / "log_history"
        path.write_bytes(checksummed.wrap("log-history", json.dumps(fields).encode()))

    def checkpoint(self, position: int, value: int) -> None:
        """Change a number of the checkpoint."""
        self.write(self.root / "checkpoint", position, struct.pack(">q", value))

    def _edit(self, name: str, kind: str, change: Callable[[dict[str, object]], None]) -> None:
        path = self.root / "reput" / name
        payload = json.loads(checksummed.unwrap(kind, path.read_bytes()))
        change(payload)
        path.write_bytes(checksummed.wrap(kind, json.dumps(payload).encode()))


@dataclass(frozen=True)
class Case:
    """A kind of damage: its effect, and the code that must name it."""

    code: str
    damage: Callable[[Target], object]
    name: str = ""
    others: frozenset[str] = frozenset()
    """Codes that come with it, because the damage really is all of this."""
    is_note: bool = False
    is_rebuilt: bool = False
    """The store is sound again after its indexes were rebuilt."""

    @property
    def id(self) -> str:
        """Name of the test."""
        return f"{self.code} {self.name}".strip()


def _records(path: Path) -> list[Record]:
    data = path.read_bytes()
    found, position = [], 0
    while position < len(data) and any(data[position : position + 8]) and not record.is_blank(data, position):
        found.append(record.decode(data, position))
        position += record.check_header(data, position).size_bytes
    return found
