# SPDX-License-Identifier: Apache-2.0
"""The positions of groups at the end of a restored log, from the records in which the log has them.

The records are those of rmq_sys_reput_state (docs/formats/state_record.md). A whole copy among them, and the changes,
are all positions. Without one, a group's position in a queue was stored before the first byte that is kept, so it is
not behind any message that is kept: the group begins at the queue's first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from cli.backup.errors import BackupDamaged
from libs.formats.config.consumer_offsets_json import ConsumerOffsetsFile
from libs.formats.errors import FormatError, NewerVersion
from libs.formats.records import record
from libs.formats.records.state_record import StateRecord
from libs.formats.state.system_topics import DELIVERY_GROUP, DELIVERY_LEFT_QUEUE_ID, DELIVERY_TOPIC
from libs.formats.store_layout import file_name, segment_base
from services.indexer.engine.share.state_rebuild import Copies, StateRebuild

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from services.indexer.engine.share.local_changes import Place

LEFT_PLACE = (DELIVERY_GROUP, DELIVERY_TOPIC, DELIVERY_LEFT_QUEUE_ID)
"""The mark of a Delivery that stopped in order. Without it the journal decides, which is as of the end of the log."""
HEAD_SIZE_BYTES = record.INT.size


class LogPositions(Struct):
    """The positions that records of the log have. Pure."""

    is_whole: bool = False
    """Whether a whole copy was among the records, so that a group without a position had none."""
    _copies: Copies = field(default_factory=Copies)
    _rebuild: StateRebuild = field(default_factory=StateRebuild)

    def read(self, state: StateRecord, physical_offset: int) -> None:
        """Add a record. The records must come in the order of the log."""
        self.is_whole |= self._copies.read(state, physical_offset)
        self._rebuild.read(state)

    def file(self, saved: ConsumerOffsetsFile | None) -> ConsumerOffsetsFile:
        """Return the positions. `saved` has the groups of a later moment."""
        found: dict[Place, int | None] = {}
        if saved is not None and not self.is_whole:
            found = {(group, topic, queue): 0 for (topic, group), queues in saved.offsets.items() for queue in queues}
        found |= self._rebuild.offsets
        found.pop(LEFT_PLACE, None)
        offsets: dict[tuple[str, str], dict[int, int]] = {}
        for (group, topic, queue), at in found.items():
            if at is not None:
                offsets.setdefault((topic, group), {})[queue] = at
        return ConsumerOffsetsFile(offsets, None if saved is None else saved.data_version)


def read_positions(
    log_directory: Path, segment_size_bytes: int, physical_offsets: Iterable[int], end_physical_offset: int
) -> LogPositions:
    """Return the positions that the records at these offsets have, as far as they are before the end of the log.

    Raises BackupDamaged, and OSError.
    """
    positions = LogPositions()
    for physical_offset in physical_offsets:
        if physical_offset >= end_physical_offset:
            break
        base = segment_base(physical_offset, segment_size_bytes)
        with (log_directory / file_name(base)).open("rb") as file:
            file.seek(physical_offset - base)
            head = file.read(HEAD_SIZE_BYTES)
            data = head + file.read(record.INT.unpack(head)[0] - HEAD_SIZE_BYTES)
        try:
            positions.read(StateRecord.decode(record.decode(data).body), physical_offset)
        except (FormatError, NewerVersion) as error:
            raise BackupDamaged(f"the positions of groups at physical offset {physical_offset}: {error}") from error
    return positions
