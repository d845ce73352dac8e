# SPDX-License-Identifier: Apache-2.0
"""What `append` needs besides bytes and gives besides records: limits, and the reusable columns of its answer.

Callers own the columns and may use them again for the next call; one thread at a time.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from libs.formats.records.delay_level import DELAY_LEVEL_COUNT_MAX, DELAY_LEVEL_MAX
from libs.kernel.layout import PLAN_QUEUE_ID, PLAN_ROW, PLAN_STRIDE, PLAN_TOPIC_SIZE, PLAN_TOPIC_START


@dataclass(frozen=True, kw_only=True, slots=True)
class AppendLimits:
    """What one append may hold. Sizes in bytes."""

    body_size_bytes_max: int
    record_size_bytes_max: int
    message_count_max: int
    crc_property: bool = False
    delay_level_count: int = DELAY_LEVEL_MAX
    """A message with a higher delay level gets the last one."""
    begun_queue_count_max: int = 2**31
    """Messages of one batch whose queue may have had none before."""
    refused_durabilities: int = 0
    """A bit for each durability that no request may ask for."""
    is_internal: bool = False
    """Whether the store itself asks, which may append to topics that are `is_internal`."""
    ahead_ms: int = 0
    """How far the store time is ahead of the clock, by which times count that messages name."""

    def __post_init__(self) -> None:
        assert 0 < self.body_size_bytes_max < 2**31
        assert 0 < self.record_size_bytes_max < 2**31
        assert 0 < self.delay_level_count <= DELAY_LEVEL_COUNT_MAX
        assert 0 <= self.refused_durabilities < 16
        assert self.ahead_ms >= 0


class AppendColumns:
    """Answer of `append`: where each message is, or which one was refused and why."""

    def __init__(self, message_count_max: int) -> None:
        assert message_count_max > 0
        self.count = 0
        """Messages that were placed; the columns' first values belong to them."""
        self.planned_count = 0
        """Messages with a row in the plan; all of the request when its only fault is an unknown topic."""
        self.new_queue_count = 0
        """Queues that were begun: the messages that were placed are the first ones of so many."""
        self.error_index = -1
        """Message that was refused, from 0; -1 if it is the request as a whole."""
        self.error_field = 0
        """Number of the proto field at fault, 0 if none."""
        self.error_value = 0
        """Value or size at fault."""
        self.topic_start = 0
        self.topic_size = 0
        """Bytes of the request that hold the topic of the refused message."""
        self.name_start = self.name_size = self.value_start = self.value_size = 0
        """Bytes of the request that hold the property that was looked at last: the one at fault, if one is."""
        self.writer_start = -1
        self.writer_size = 0
        """Bytes of the request that hold the writer; -1 if it names none."""
        self.durability = 0
        """Field 2 of the request."""
        self.physical_offsets = array("q", bytes(8 * message_count_max))
        self.queue_offsets = array("q", bytes(8 * message_count_max))
        self.queue_ids = array("i", bytes(4 * message_count_max))
        self.plan = array("q", bytes(8 * PLAN_STRIDE * message_count_max))

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield the row of the topic and the queue id of each planned message, -1 where the server chooses."""
        columns = (self.plan[column : PLAN_STRIDE * self.count : PLAN_STRIDE] for column in (PLAN_ROW, PLAN_QUEUE_ID))
        return zip(*columns, strict=True)

    def topics(self, request: bytes) -> list[bytes]:
        """Return the topics of the planned messages, each once, in the order of their first message."""
        end = PLAN_STRIDE * self.planned_count
        starts = self.plan[PLAN_TOPIC_START:end:PLAN_STRIDE]
        sizes = self.plan[PLAN_TOPIC_SIZE:end:PLAN_STRIDE]
        return list(dict.fromkeys([request[start : start + size] for start, size in zip(starts, sizes, strict=True)]))

    def property_at_fault(self, request: bytes) -> tuple[bytes, bytes]:
        """Return name and value of the property that was looked at last."""
        name = request[self.name_start : self.name_start + self.name_size]
        return name, request[self.value_start : self.value_start + self.value_size]
