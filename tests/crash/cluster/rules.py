# SPDX-License-Identifier: Apache-2.0
"""Rules: the rules of replication for members of a log, checked while they run, from outside.

A broken rule shows here long before anything is lost by it. The checks cover the disks as a power cut would leave them,
the record at the coordinator with each change of it, and the messages between members. Invariants: nothing here asks a
log for its belief where its disk can be looked at; findings are reported at the next look of the world, because the
checked member must not hear of them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from libs.formats import store_layout
from libs.formats.errors import FormatError
from libs.formats.records import properties, writer_stamp
from libs.formats.state.leadership import LeadershipRecord
from libs.formats.state.replication import Member, ReplicaFile
from libs.machine.testing.memory_fs import MemoryFs
from libs.machine.testing.memory_nodes import File
from services.commitlog.engine.elect.coordinator import View
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.steps import Ack, Handshake

if TYPE_CHECKING:
    from tests.crash.cluster.node import Node

STORE = Path("/store")
STAMP = re.compile(properties.WRITER + rb"\x01([0-9a-f]{%d}[!-~]{1,200})\x02" % writer_stamp.DIGIT_COUNT)


class Reach(NamedTuple):
    """Up to where a log was looked at, and the end of the last batch of a writer that begins before."""

    physical_offset: int = 0
    batch_start_physical_offset: int = 0
    batch_end_physical_offset: int = 0


class Term(NamedTuple):
    """The elected member, with its identity."""

    member: Member
    identity: str


@dataclass(slots=True)
class Rules:
    """The rules of a run. Offsets are physical, ends exclusive."""

    segment_size_bytes: int
    confirmed: bytearray = field(default_factory=bytearray)
    """The log as far as any leader ever took it for replicated."""
    broken: list[str] = field(default_factory=list)
    set_change_count: int = 0
    handed_over: set[int] = field(default_factory=set)
    """Epochs of leaders that ended in a handover, with the named next leader."""
    _terms: dict[int, Term] = field(default_factory=dict)
    """The elected members, by epoch."""
    _was_cut_short: set[int] = field(default_factory=set)
    """Epochs whose lease ended before its time."""
    _known_epochs: dict[str, int] = field(default_factory=dict)
    """Newest epoch that a store led in, or acknowledged anything for."""
    _shown_ends: dict[str, int] = field(default_factory=dict)
    """The greatest end that each store showed, by store id."""

    @property
    def election_count(self) -> int:
        """The number of epochs that have an elected member."""
        return len(self._terms)

    def expect(self, condition: bool, text: str) -> None:
        """Keep a fault for the next look."""
        if not condition:
            self.broken.append(text)

    # The record.

    def changed(self, before: View, after: View) -> None:
        """Look at a change of the record or its holder (S4, S6 to S8)."""
        old, new = before.record, after.record
        assert new is not None
        self.expect(len(new.in_sync) >= new.min_in_sync, f"the set is smaller than {new.min_in_sync}: {new}")
        if after.holder and after.holder_version != before.holder_version:
            assert new.leader is not None
            self._terms[new.epoch] = Term(new.leader, after.holder)
        if old is None:
            return
        what = f"from {old} to {new}"
        is_elected = new.epoch != old.epoch
        self.expect(new.epoch - old.epoch in (0, 1), f"the epoch goes {what}")
        self.expect(new.floor_physical_offset >= old.floor_physical_offset, f"the floor goes down {what}")
        self.expect(is_elected or new.leader in (old.leader, None), f"the leader changes within an epoch {what}")
        is_taken = bool(after.holder) and after.holder_version != before.holder_version
        self.expect(is_elected or not is_taken, f"the lease is taken without another epoch {what}")
        if is_elected:
            self.expect(new.leader in old.in_sync, f"elected outside of the set: {what}")
            self.expect(set(new.in_sync) <= set(old.in_sync), f"an election lets somebody in: {what}")
            if old.leader is None and new.leader is not None and new.leader.replica_id == old.successor:
                self.handed_over.add(old.epoch)
        self.set_change_count += not is_elected and set(new.in_sync) != set(old.in_sync)

    def ended_early(self, view: View) -> None:
        """The coordinator ends a lease before its time."""
        if view.record is not None:
            self._was_cut_short.add(view.record.epoch)

    def lease_ends(self, name: str, epoch: int, left_ms: int) -> None:
        """Look at a holder whose lease ends for all: for itself it ended before, but for others' promises (S13)."""
        is_over = left_ms == 0 or epoch in self._was_cut_short
        self.expect(is_over, f"the lease of {name} in epoch {epoch} is over, and it thinks there are {left_ms} ms left")

    # The acts of members.

    def leads(self, node: "Node", log: OpenLog) -> None:
        """Look at a log that leads: it was elected, itself, in this run of its process (S8), and has promised (S9)."""
        epoch, member = log.epochs.number, Member(node.name, log.identity.store_id)
        term = self._terms.get(epoch)
        self.expect(term == (member, node.run), f"{node.run} {member} leads in epoch {epoch}, elected was {term}")
        self._keeps_to(node, member.store_id, epoch)

    def acknowledges(self, node: "Node", log: OpenLog, ack: Ack, handshake: Handshake) -> None:
        """Look at an acknowledgement of a log that follows (S1, S9)."""
        end, seen = ack.flushed_physical_offset, node.reach
        self._keeps_to(node, log.identity.store_id, handshake.epochs[-1].number)
        if end <= seen.physical_offset:
            return
        here = self.written(node.disk, seen.physical_offset, end)
        is_kept = here == self._kept(node.disk, seen.physical_offset, end)
        self.expect(is_kept, f"{node.name} acknowledges {end}, and its disk has not all of that")
        node.reach = self._reach(here, seen, end)
        start, batch_end = node.reach.batch_start_physical_offset, node.reach.batch_end_physical_offset
        self.expect(not start < end < batch_end, f"{node.name} acknowledges {end}, within the batch of {start}")

    def agrees(self, leader: "Node", follower: "Node", handshake: Handshake) -> None:
        """Look at two logs that have agreed on their common records (S10)."""
        end = handshake.common_end_physical_offset
        mine, theirs = (self.written(node.disk, 0, end) for node in (leader, follower))
        self.expect(mine == theirs, f"{leader.name} and {follower.name} agree on {end}, and differ before")

    def serves(self, name: str, epoch: int, record: LeadershipRecord | None) -> None:
        """Look at an answer that names less than REPLICATED: no other member may be elected by then (S13)."""
        if record is not None and record.epoch > epoch and epoch not in self._was_cut_short:
            self.expect(False, f"{name} acknowledges in epoch {epoch}, and {record.leader} leads in {record.epoch}")

    def shows(self, node: "Node", log: OpenLog) -> None:
        """Look at the shown end of a log that shows replicated records: its store never ends before it (S11).

        Records that a follower shows are on its disk, so that a power cut takes none of them.
        """
        store_id, end, visible = log.identity.store_id, log.marks.wrote.value, log.marks.visible.value
        shown = self._shown_ends.get(store_id, 0)
        self.expect(end >= shown, f"{node.name} ends at {end}, and showed {shown} before")
        if log.follower is not None and visible > shown:
            is_kept = self._kept(node.disk, shown, visible) == self.written(node.disk, shown, visible)
            self.expect(is_kept, f"{node.name} follows and shows {visible}, and its disk has not all of that")
        if store_id:
            self._shown_ends[store_id] = max(shown, visible)

    def confirms(self, leader: "Node", end: int, members: list["Node"]) -> None:
        """Look at bytes that a leader takes for replicated: each member of the set has them on disk (S2, S3, S12)."""
        known = len(self.confirmed)
        if end <= known:
            return
        self.confirmed += self.written(leader.disk, known, end)
        self.holds(members, known)

    def holds(self, members: list["Node"], start: int = 0) -> None:
        """Look whether all that was ever replicated is on the disks of the members of the set, from an offset on."""
        end = len(self.confirmed)
        for node in members:
            kept = self._kept(node.disk, start, end)
            same = _common_size(kept, self.confirmed[start:])
            what = f"{node.name}, which is in the set, has the same on its disk up to {start + same} only"
            self.expect(start + same == end, f"{end} was replicated, and {what}")

    def _keeps_to(self, node: "Node", store_id: str, epoch: int) -> None:
        """Check that a store leads in or follows no older epoch than before, and has promised the epoch on its disk."""
        newest = self._known_epochs.get(store_id, 0)
        self.expect(epoch >= newest, f"{node.name} goes back from epoch {newest} to {epoch}")
        self._known_epochs[store_id] = max(newest, epoch)
        if epoch > newest:
            file = replica_file(node.disk)
            promised = file.promised_epoch if file is not None else 0
            self.expect(promised >= epoch, f"{node.name} is in epoch {epoch}, and has promised {promised} on its disk")

    def written(self, disk: MemoryFs, start: int, end: int) -> bytes:
        """Return a part of a log as it was written, less if there is no more."""
        return b"".join(file.data[part] for file, part in _parts(disk, start, end, self.segment_size_bytes))

    def _kept(self, disk: MemoryFs, start: int, end: int) -> bytes:
        """Return a part of a log as a power cut would leave it, less if there is no more."""
        return b"".join(file.durable[part] for file, part in _parts(disk, start, end, self.segment_size_bytes))

    @staticmethod
    def _reach(data: bytes, seen: Reach, end: int) -> Reach:
        start, batch_end = seen.batch_start_physical_offset, seen.batch_end_physical_offset
        for found in STAMP.finditer(data):
            try:
                stamp = writer_stamp.decode(found[1])
            except FormatError:
                continue
            start, batch_end = stamp.start_physical_offset, stamp.end_physical_offset
        return Reach(end, start, batch_end)


def _common_size(one: bytes, other: bytes | bytearray) -> int:
    """Return how many first bytes are the same."""
    if one == other:
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


def replica_file(disk: MemoryFs) -> ReplicaFile | None:
    """Return a store's own replica file, as a power cut would leave it."""
    try:
        return ReplicaFile.decode(disk.file(STORE / store_layout.REPLICA).durable)
    except (OSError, FormatError):
        return None


def _parts(disk: MemoryFs, start: int, end: int, segment_size_bytes: int) -> Iterator[tuple[File, slice]]:
    """Return the files that a part of a log lies in, as far as there are any, and where in each."""
    while start < end:
        base = start - start % segment_size_bytes
        part_end = min(end, base + segment_size_bytes)
        try:
            file = disk.file(STORE / store_layout.COMMIT_LOG / store_layout.file_name(base))
        except OSError:
            return
        yield file, slice(start - base, part_end - base)
        start = part_end
