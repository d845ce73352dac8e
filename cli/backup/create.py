# SPDX-License-Identifier: Apache-2.0
"""A backup of a running store: reads what is new, piece by piece, and writes the manifest last.

Invariants: a killed backup leaves no manifest, but a list of the pieces that it wrote, over which the next one goes on.
The positions of groups are read before the end of the log is taken, so no group is ahead of the log. At the end the
log must still have the history of the begin, so that no two histories are in a backup.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec import Struct, field

from cli.backup.errors import BackupError, PlaceFailed
from cli.backup.manifest import Content, Manifest, Piece, digest_of
from cli.backup.plan import Extent, created_after, is_continued, new_backup_id, plan_backup
from libs.formats.limits import MIB
from libs.formats.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cli.backup.repository import Repository

PIECE_SIZE_BYTES = 32 * MIB


class Stretch(NamedTuple):
    """Consecutive records. A stretch without a byte is a blank, up to the next segment."""

    start_physical_offset: int
    end_physical_offset: int
    data: bytes


class Source(Protocol):
    """A running store."""

    def positions(self) -> Mapping[str, bytes]:
        """Return the files with the positions of groups, by their path in the data directory."""
        ...

    def state(self) -> tuple[Extent, Mapping[str, bytes]]:
        """Return an end of the log, and the other small files as of this end."""
        ...

    def records(self, start_physical_offset: int, end_physical_offset: int) -> Iterable[Stretch]:
        """Yield the records of a part of the log, in order and without a gap."""
        ...


class Pace:
    """Keeps bytes per second below a limit by sleeping; 0 is no limit."""

    def __init__(
        self,
        bytes_per_s: float,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_s, self._now_s, self._sleep = bytes_per_s, now_s, sleep
        self._free_at_s = now_s()

    def take(self, size_bytes: int) -> None:
        """Count bytes, and sleep until they are due."""
        if not self._bytes_per_s:
            return
        now_s = self._now_s()
        self._free_at_s = max(self._free_at_s, now_s) + size_bytes / self._bytes_per_s
        if (wait_s := self._free_at_s - now_s) > 0:
            self._sleep(wait_s)


class Creation(Struct):
    """The making of a backup. `show` gets the bytes that were read, and their number in total."""

    repository: Repository
    source: Source
    pace: Pace
    show: Callable[[int, int], None]
    piece_size_bytes: int = PIECE_SIZE_BYTES
    _pieces: list[Piece] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=dict)
    _new_bytes: int = 0

    def run(self, now_ms: int) -> Manifest:
        """Make the backup. Returns its manifest. Raises BackupError."""
        repository = self.repository
        positions = self.source.positions()
        extent, files = self.source.state()
        earlier, incomplete = repository.load_all(), repository.load_incomplete()
        plan = plan_backup(extent, [*earlier, *incomplete.values()])
        taken = [*(one.backup_id for one in earlier), *incomplete]
        created_ms = created_after(earlier, now_ms)
        self._known = repository.objects()
        self._pieces = list(plan.kept)
        manifest = Manifest(
            backup_id=new_backup_id(created_ms, extent.end_physical_offset, taken),
            created_ms=created_ms,
            **{**extent._asdict(), "end_physical_offset": plan.start_physical_offset},
            pieces=plan.kept,
        )
        if plan.start_physical_offset < extent.end_physical_offset:
            self._save_list(manifest)  # before a prune could delete the pieces that are taken over
            for name in incomplete:
                repository.forget_incomplete(name)
        self._copy(manifest, plan.start_physical_offset, extent.end_physical_offset)
        contents = {name: self._put(data) for name, data in {**files, **positions}.items()}
        later, _ = self.source.state()
        if not is_continued(extent, later):
            raise BackupError(
                "the log lost its end, or another log was asked, while it was read: make the backup again"
            )
        manifest = msgspec.structs.replace(
            manifest,
            end_physical_offset=extent.end_physical_offset,
            pieces=tuple(self._pieces),
            files=contents,
            new_bytes=self._new_bytes,
        )
        repository.check_all_there(manifest)
        repository.save(manifest)
        with suppress(PlaceFailed):  # the backup is complete; the next one removes its list
            for name in {*incomplete, manifest.backup_id}:
                repository.forget_incomplete(name)
        return manifest

    def _copy(self, manifest: Manifest, start: int, end: int) -> None:
        """Read a part of the log, and write it in pieces, none of them in two segments."""
        size, at, piece = manifest.segment_size_bytes, start, bytearray()
        for stretch in self.source.records(start, end):
            if stretch.start_physical_offset != at or stretch.end_physical_offset <= at:
                raise BackupError(f"the store sent records from {stretch.start_physical_offset} on, not from {at}")
            if not stretch.data and stretch.end_physical_offset % size:
                raise BackupError(f"the store sent no record for {at} to {stretch.end_physical_offset}")
            self.pace.take(len(stretch.data))
            piece += stretch.data or _blank(stretch)
            at = stretch.end_physical_offset
            if len(piece) != at - self._end(start):
                raise BackupError(f"the store sent {len(piece)} bytes for {self._end(start)} to {at}")
            if at % size == 0 or len(piece) >= self.piece_size_bytes:
                self._add(start, piece)
                self._save_list(manifest)
                piece = bytearray()
            self.show(at - start, end - start)
        if at != end:
            raise BackupError(f"the store sent records up to {at}, not to {end}")
        if piece:
            self._add(start, piece)

    def _end(self, start: int) -> int:
        """Return the end of the pieces."""
        return self._pieces[-1].end_physical_offset if self._pieces else start

    def _add(self, start: int, data: bytearray) -> None:
        at = self._end(start)
        self._pieces.append(Piece(at, len(data), self._put(data).sha256))

    def _put(self, data: bytes | bytearray) -> Content:
        """Write an object unless it is there, and read it back in both cases."""
        content = Content(digest_of(data), len(data))
        if self._known.get(content.sha256) == content.size_bytes:
            self.repository.get(content.sha256, content.size_bytes)
            return content
        self._new_bytes += content.size_bytes
        self._known[content.sha256] = content.size_bytes
        return self.repository.put(data)

    def _save_list(self, manifest: Manifest) -> None:
        """Write the list of the pieces so far. Epochs that begin later do not matter to it."""
        pieces = tuple(self._pieces)
        end = pieces[-1].end_physical_offset if pieces else manifest.min_physical_offset
        self.repository.save_incomplete(msgspec.structs.replace(manifest, pieces=pieces, end_physical_offset=end))


def _blank(stretch: Stretch) -> bytes:
    """Return the blank that closes a segment. Only its first bytes have a meaning."""
    size = stretch.end_physical_offset - stretch.start_physical_offset
    return record.encode_blank(size).ljust(size, b"\0")
