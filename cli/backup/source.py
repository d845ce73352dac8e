# SPDX-License-Identifier: Apache-2.0
"""The running store of a backup, over its APIs: a CommitLog, and an Indexer for the positions of groups."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct
from reput_client import UnavailableError

from cli.backup.create import Stretch
from cli.backup.errors import BackupError
from cli.backup.manifest import EpochStart
from cli.backup.plan import Extent
from libs.formats import store_layout
from libs.formats.config import consumer_offsets_json
from libs.formats.config.consumer_offsets_json import ConsumerOffsetsFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reput_client import Client

RESUME_COUNT = 10
"""Times that a broken stream of records is opened again without a byte in between."""
RESUME_DELAY_S = 1.0


class RunningStore(Struct, frozen=True):
    """A store behind a client. Without positions the Indexer is not asked."""

    client: Client
    has_positions: bool = True

    def positions(self) -> Mapping[str, bytes]:
        """Return the offsets of all groups, as the Indexer's file has them."""
        if not self.has_positions:
            return {}
        offsets: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        for group in self.client.groups.list():
            for offset in group.offsets:
                offsets[offset.topic, group.name][offset.queue_id] = offset.queue_offset
        text = consumer_offsets_json.dumps(ConsumerOffsetsFile(dict(offsets)))
        return {store_layout.CONSUMER_OFFSETS: text.encode()}

    def state(self) -> tuple[Extent, Mapping[str, bytes]]:
        """Return an end of the log, and the CommitLog's small files as of this end."""
        extent: Extent | None = None
        files: dict[str, bytearray] = defaultdict(bytearray)
        for part in self.client.admin.backup_state():
            if part.HasField("extent"):
                found = part.extent
                epochs = tuple(EpochStart(one.number, one.start_physical_offset) for one in found.epochs)
                extent = Extent(
                    found.min_physical_offset,
                    found.end_physical_offset,
                    found.segment_size_bytes,
                    found.history_id,
                    epochs,
                )
            else:
                files[part.file.name] += part.file.data
        if extent is None:
            raise BackupError("the CommitLog sent no extent of its log")
        return extent, {name: bytes(data) for name, data in files.items()}

    def records(self, start_physical_offset: int, end_physical_offset: int) -> Iterator[Stretch]:
        """Yield the records of a part of the log. A stream that breaks is opened again where it broke."""
        at, failed_count = start_physical_offset, 0
        while at < end_physical_offset:
            try:
                for step in self.client.admin.raw_records(at, end_physical_offset):
                    if step.record_count and not step.records:
                        raise BackupError(f"the CommitLog sent {step.record_count} records from {at} on without bytes")
                    yield Stretch(step.start_physical_offset, step.end_physical_offset, step.records)
                    at, failed_count = step.end_physical_offset, 0
            except UnavailableError:
                failed_count += 1
                if failed_count > RESUME_COUNT:
                    raise
                time.sleep(RESUME_DELAY_S)
            else:
                if at < end_physical_offset:
                    raise BackupError(f"the CommitLog sent records up to {at}, not to {end_physical_offset}")
