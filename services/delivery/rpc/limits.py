# SPDX-License-Identifier: Apache-2.0
"""The size limits of Delivery's requests. Methods that are not named have the default.

Each limit is a little larger than the method's lists may be, so that a list that is too long is refused by its name.
"""

from libs.formats.limits import MIB
from libs.runtime.rpc.request_check import DEFAULT_LIMITS, Limits, RequestLimits
from services.delivery.rpc.dead_letter_servicer import PLACE_COUNT_MAX
from services.delivery.rpc.settling import ENTRY_COUNT_MAX

ENTRY_FIELD_COUNT = 8
"""Fields of an entry to settle, of its action and its time, and the field that contains it."""
PLACE_FIELD_COUNT = 3
SPARE_COUNT = 1_000

REQUEST_SIZE_BYTES_MAX = 2 * MIB
"""Room for a thousand handles of the largest size, and more."""

_ENTRIES = RequestLimits(REQUEST_SIZE_BYTES_MAX, ENTRY_FIELD_COUNT * ENTRY_COUNT_MAX + SPARE_COUNT)
_PLACES = RequestLimits(DEFAULT_LIMITS.size_bytes_max, PLACE_FIELD_COUNT * PLACE_COUNT_MAX + SPARE_COUNT)

LIMITS: Limits = {
    "Settle": _ENTRIES,
    "Consume": _ENTRIES,
    "ListDeadLetters": _PLACES,
    "ReplayDeadLetters": _PLACES,
}
