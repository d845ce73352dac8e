# SPDX-License-Identifier: Apache-2.0
"""The compared parts of the indexes on disk.

They are all bytes of the queues, and hash and place of every index entry, in order.
"""

from pathlib import Path

import msgspec

from libs.formats.indexes import consume_queue, index_file
from tests.interop.rocketmq.stored import SCHEDULE_TOPIC, Sizes


class IndexBytes(msgspec.Struct, frozen=True):
    """The indexes of a store at rest."""

    queue_files: list[tuple[str, bytes]]
    entries: list[tuple[int, int]]

    def without_delivery_times(self) -> "IndexBytes":
        """Return the indexes as a start of 4.9 builds them.

        4.9 does not know the delay levels at its start and writes tags instead of delivery times.
        """
        return msgspec.structs.replace(
            self, queue_files=[(name, _blind(name, data)) for name, data in self.queue_files]
        )


def index_bytes(store: Path, sizes: Sizes) -> IndexBytes:
    """Read the indexes.

    Entries that RocketMQ made twice, of the last message before a stop, count once.
    """
    root = store / "consumequeue"
    files = [(str(path.relative_to(root)), path.read_bytes()) for path in sorted(root.rglob("*")) if path.is_file()]
    entries: dict[tuple[int, int], None] = {}
    for path in sorted((store / "index").iterdir()):
        data = path.read_bytes()
        for number in range(1, index_file.decode_header(data).next_entry):
            entry = index_file.decode_entry(data, index_file.entry_position(number, sizes.index_slot_count))
            entries[entry.key_hash, entry.physical_offset] = None
    return IndexBytes(files, list(entries))


def _blind(name: str, data: bytes) -> bytes:
    if not name.startswith(SCHEDULE_TOPIC):
        return data
    size = consume_queue.UNIT_SIZE_BYTES
    return b"".join(data[at : at + size - 8] + bytes(8) for at in range(0, len(data), size))
