# SPDX-License-Identifier: Apache-2.0
"""The size limits of the Indexer's requests. Methods without an entry have the default.

Each limit is slightly larger than the lists of the request may be, so that the error names a list that is too long.
"""

from libs.formats.limits import KIB, MIB, QUEUE_COUNT_MAX
from libs.runtime.rpc.request_check import Limits, RequestLimits
from services.indexer.rpc.consumer_offset_servicer import OFFSET_COUNT_MAX
from services.indexer.rpc.query_servicer import KEY_COUNT_MAX as QUERY_KEY_COUNT_MAX
from services.indexer.rpc.queue_servicer import PART_COUNT_MAX, SIZE_OFFSET_COUNT_MAX
from services.indexer.rpc.scan_servicer import KEY_COUNT_MAX, RANGE_COUNT_MAX, TOPIC_COUNT_MAX

FIELD_COUNT = 5
"""Fields of a range or of an offset, and the field that contains it."""
SPARE_COUNT = 1_000

SCAN = RequestLimits(
    size_bytes_max=16 * MIB,
    value_count_max=FIELD_COUNT * RANGE_COUNT_MAX + KEY_COUNT_MAX + QUEUE_COUNT_MAX + TOPIC_COUNT_MAX + SPARE_COUNT,
)

LIMITS: Limits = {
    "CommitConsumerOffset": RequestLimits(
        size_bytes_max=512 * KIB, value_count_max=FIELD_COUNT * OFFSET_COUNT_MAX + SPARE_COUNT
    ),
    "GetQueueRange": RequestLimits(size_bytes_max=128 * KIB, value_count_max=SIZE_OFFSET_COUNT_MAX + SPARE_COUNT),
    "MeasureQueues": RequestLimits(
        size_bytes_max=MIB, value_count_max=FIELD_COUNT * PART_COUNT_MAX + SIZE_OFFSET_COUNT_MAX + SPARE_COUNT
    ),
    "PlanScan": SCAN,
    "QueryByKeys": RequestLimits(size_bytes_max=MIB, value_count_max=QUERY_KEY_COUNT_MAX + SPARE_COUNT),
    "Scan": SCAN,
}

REQUEST_SIZE_BYTES_MAX = max(limit.size_bytes_max for limit in LIMITS.values())
"""The largest limit: gRPC collects this many bytes of each call before the call can be refused."""
