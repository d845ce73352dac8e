# SPDX-License-Identifier: Apache-2.0
"""How large the Indexer's requests may be; methods that are not named have the default.

Each has room for a little more than its lists may hold, so that a list that is too long is refused by its name.
"""

from libs.formats.limits import KIB, MIB, QUEUE_COUNT_MAX
from libs.runtime.rpc.request_check import Limits, RequestLimits
from services.indexer.rpc.consumer_offset_servicer import OFFSET_COUNT_MAX
from services.indexer.rpc.queue_servicer import SIZE_OFFSET_COUNT_MAX
from services.indexer.rpc.scan_servicer import KEY_COUNT_MAX, RANGE_COUNT_MAX, TOPIC_COUNT_MAX

FIELD_COUNT = 5
"""Fields of a range or of an offset, and the one that it is in."""
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
    "PlanScan": SCAN,
    "Scan": SCAN,
}

REQUEST_SIZE_BYTES_MAX = max(limit.size_bytes_max for limit in LIMITS.values())
"""The largest of all: gRPC collects so much for each call before anybody may refuse it."""
