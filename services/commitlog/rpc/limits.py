# SPDX-License-Identifier: Apache-2.0
"""Size limits of the CommitLog's parsed requests. Methods that are not listed have the default.

Each limit has some room above the longest permitted lists, so that the refusal of a longer list can name the list.
The kernel reads Append, AppendState and AppendStream; settings limit their size.
"""

from libs.formats.epoch import EPOCH_COUNT_MAX
from libs.formats.limits import MIB, READ_COUNT_MAX
from libs.runtime.rpc.request_check import Limits, RequestLimits
from services.commitlog.engine.follow.queue_offset_check import QUEUE_END_COUNT_MAX
from services.commitlog.engine.keep.segments import DELETE_COUNT_MAX

QUEUE_END_FIELD_COUNT = 5
"""Fields of a queue's end, and the field that contains it."""
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
