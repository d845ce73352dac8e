# SPDX-License-Identifier: Apache-2.0
"""The limits of `append`, and the reusable columns of its answer.

Callers own the columns and may use them again for the next call. A single thread at a time may use them.
"""

from collections.abc import Iterator

from msgspec import Struct

from libs.formats.records.delay_level import DELAY_LEVEL_COUNT_MAX, DELAY_LEVEL_MAX
from libs.kernel.layout import PLAN_QUEUE_ID, PLAN_ROW, PLAN_STRIDE, PLAN_TOPIC_SIZE, PLAN_TOPIC_START
from libs.kernel.zeros import zeros


class AppendLimits(Struct, frozen=True, kw_only=True):
    """The limits of an append. Sizes are in bytes."""

    body_size_bytes_max: int
    record_size_bytes_max: int
    message_count_max: int
    crc_property: bool = False
    delay_level_count: int = DELAY_LEVEL_MAX
    """A message with a higher delay level gets the last level."""
    begun_queue_count_max: int = 2**31
    """Maximum number of messages of a batch whose queue may have no message yet."""
    refused_durabilities: int = 0
    """A bit for each durability that is refused."""
    is_behind_refused: bool = False
    """Whether the request before this one in its stream was refused. Then a request that needs it is refused, too."""
    is_internal: bool = False
    """Whether the store itself appends. It may append to topics that are `is_internal`."""
    ahead_ms: int = 0
    """Milliseconds by which the store time is ahead of the clock. Times in messages refer to the clock."""

    def __post_init__(self) -> None:
        assert 0 < self.body_size_bytes_max < 2**31
        assert 0 < self.record_size_bytes_max < 2**31
        assert 0 < self.delay_level_count <= DELAY_LEVEL_COUNT_MAX
        assert 0 <= self.refused_durabilities < 16
        assert self.ahead_ms >= 0


class AppendColumns:
    """The answer of `append`: the place of each message, or the refused message and the reason."""

    def __init__(self, message_count_max: int) -> None:
        assert message_count_max > 0
        self.count = 0
        """Number of placed messages; the first values of the columns belong to them."""
        self.planned_count = 0
        """Number of messages with a row in the plan. All of the request if its only fault is an unknown topic."""
        self.new_queue_count = 0
        """Number of queues that got their first message."""
        self.error_index = -1
        """Index of the refused message, from 0. -1 if the request as a whole was refused."""
        self.error_field = 0
        """Number of the proto field at fault, 0 if none."""
        self.error_value = 0
        """Value or size at fault."""
        self.topic_start = 0
        self.topic_size = 0
        """The bytes of the request that contain the topic of the refused message."""
        self.name_start = self.name_size = self.value_start = self.value_size = 0
        """The bytes of the request that contain the property that was checked last. A refused property is the last."""
        self.writer_start = -1
        self.writer_size = 0
        """The bytes of the request that contain the writer. -1 if the request names none."""
        self.durability = 0
        """Field 2 of the request."""
        self.physical_offsets = zeros("q", message_count_max)
        self.queue_offsets = zeros("q", message_count_max)
        self.queue_ids = zeros("i", message_count_max)
        self.plan = zeros("q", PLAN_STRIDE * message_count_max)

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
        """Return name and value of the property that was checked last."""
        name = request[self.name_start : self.name_start + self.name_size]
        return name, request[self.value_start : self.value_start + self.value_size]
