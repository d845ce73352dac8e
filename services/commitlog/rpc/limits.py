# SPDX-License-Identifier: Apache-2.0
"""How large the CommitLog's requests may be that are parsed; methods that are not named have the default.

Each has room for a little more than its lists may hold, so that a list that is too long is refused by its name.
Append and AppendStream are read by the kernel and have settings.
"""

from libs.formats.epoch import EPOCH_COUNT_MAX
from libs.formats.limits import MIB, READ_COUNT_MAX
from libs.runtime.rpc.request_check import Limits, RequestLimits
from services.commitlog.engine.follow.queue_offset_check import QUEUE_END_COUNT_MAX
from services.commitlog.engine.keep.segments import DELETE_COUNT_MAX

QUEUE_END_FIELD_COUNT = 5
"""Fields of a queue's end, and the one that it is in."""
SPARE_COUNT = 1_000

LIMITS: Limits = {
    "ReadRecords": RequestLimits(value_count_max=2 * READ_COUNT_MAX + SPARE_COUNT),
    "CheckQueueOffsets": RequestLimits(
        size_bytes_max=2 * MIB, value_count_max=QUEUE_END_FIELD_COUNT * QUEUE_END_COUNT_MAX + SPARE_COUNT
    ),
    "Dispatch": RequestLimits(value_count_max=3 * EPOCH_COUNT_MAX + SPARE_COUNT),
    "Replicate": RequestLimits(value_count_max=3 * EPOCH_COUNT_MAX + SPARE_COUNT),
    "DeleteSegments": RequestLimits(value_count_max=DELETE_COUNT_MAX + SPARE_COUNT),
}
