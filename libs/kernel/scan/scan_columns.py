# SPDX-License-Identifier: Apache-2.0
"""The answer of `scan`: flat columns with a value per record, the hashes of the keys, and the end of the walk.

The caller owns the columns and may use them again; every scan fills them from the start. A single thread at a time.
"""

from array import array
from collections.abc import Sequence

from libs.formats.limits import INT32_MAX
from libs.formats.records.delay_level import DELAY_LEVELS_MS
from libs.kernel.layout import INT32_SPAN, QUEUE_ROW_STRIDE, STAMP_STRIDE
from libs.kernel.zeros import zeros

KEY_COUNT_PER_RECORD_MAX = 16384
"""32,767 bytes of properties cannot hold more keys; a scan that starts empty always has room for a record."""


class ScanColumns:
    """The answer of `scan`. Values of a column beyond `count` (`key_count` for key_hashes) are from an earlier scan."""

    def __init__(
        self, record_count_max: int, key_count_max: int, delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS
    ) -> None:
        """Make room for `record_count_max` records and `key_count_max` keys, at least for 16,384 keys.

        The delay levels decide when the messages of the schedule topic are due.
        """
        assert record_count_max > 0
        assert delay_levels_ms
        self.delays_ms = array("q", delay_levels_ms)
        self.count = 0
        self.key_count = 0
        self.queue_count = 0
        self.status = 0
        self.end_position = 0
        """Segment position behind the last record of the columns."""
        self.error_position = -1
        """Segment position of the record that stopped the walk; -1 if no record did."""
        self.physical_offsets = zeros("q", record_count_max)
        self.queue_offsets = zeros("q", record_count_max)
        self.tags_codes = zeros("q", record_count_max)
        self.store_times_ms = zeros("q", record_count_max)
        self.positions = zeros("q", record_count_max)
        self.record_sizes = zeros("i", record_count_max)
        self.queue_indexes = zeros("i", record_count_max)
        self.sys_flags = zeros("i", record_count_max)
        self.key_counts = zeros("i", record_count_max)
        self.key_hashes = zeros("i", max(key_count_max, KEY_COUNT_PER_RECORD_MAX))
        self.queue_rows = zeros("q", record_count_max * QUEUE_ROW_STRIDE)
        self.slots = zeros("i", 1 << (2 * record_count_max - 1).bit_length())  # row + 1; at most half full
        self.stamp_places = zeros("q", record_count_max * STAMP_STRIDE)
        self.stamps: list[tuple[int, bytes]] = []
        """Writers' stamps: the record's index and the value of its property (libs/formats/records/writer_stamp.py)."""
        self.batch_queues: frozenset[int] = frozenset()
        """Indexes of `queues` whose records each hold a batch of messages; the same queue may have another index."""
        self._queues: list[tuple[bytes, int]] = []

    def queues(self) -> list[tuple[bytes, int]]:
        """Return the distinct (topic, queue_id) of the records, in order of appearance. queue_indexes points here."""
        return self._queues

    def set_queues(self, queues: list[tuple[bytes, int]]) -> None:
        """Set the queues of the scan that has just ended, for the kernel. Ids from 2**31 on belong to batches."""
        batches = [index for index, (_, queue_id) in enumerate(queues) if queue_id > INT32_MAX]
        for index in batches:
            topic, queue_id = queues[index]
            queues[index] = (topic, queue_id - INT32_SPAN)  # the kernel has added it to the id, which may be negative
        self.batch_queues = frozenset(batches)
        self._queues = queues
