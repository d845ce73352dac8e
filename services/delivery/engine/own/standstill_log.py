# SPDX-License-Identifier: Apache-2.0
"""StandstillLog: writes a log line when a queue of a group begins to stand still, and when that ends.

A queue stands still if it has a reason, and its first unsettled message is the same as at the look before.
Callers: the event loop's thread. Memory: an entry for each queue that has a reason.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from libs.formats.records.delivery_record import Place
from services.delivery.engine.own.lags import QueueLag
from services.delivery.engine.own.standstill import Reason

LINE_COUNT_MAX = 20
"""Lines of a look. A further line tells how many are left out."""

_log = logging.getLogger(__name__)


class StandstillLog:
    """Compares the queues of each look with the look before."""

    def __init__(self) -> None:
        self._before: Mapping[tuple[Place, Reason], int] = {}
        self._still: set[tuple[Place, Reason]] = set()

    def look(self, lags: Sequence[QueueLag]) -> Counter[tuple[str, str, str]]:
        """Log standstills that began or ended, and return how many queues stand still, by group, topic and reason."""
        now = {
            (lag.place, one.reason): (lag.committed, one.text)
            for lag in lags
            for one in lag.standstills
            if lag.unsettled_count
        }
        still = {key for key, (committed, _) in now.items() if self._before.get(key) == committed}
        lines = [(key, f"stands still: {now[key][1]}") for key in sorted(still - self._still, key=_order)]
        lines += [(key, "does so no more") for key in sorted(self._still - still, key=_order)]
        for (place, reason), text in lines[:LINE_COUNT_MAX]:
            _log.warning("group %s at %s/%d, %s: %s", place.group, place.topic, place.queue_id, reason, text)
        if len(lines) > LINE_COUNT_MAX:
            _log.warning("%d more queues of groups began or ended to stand still", len(lines) - LINE_COUNT_MAX)
        self._before, self._still = {key: committed for key, (committed, _) in now.items()}, still
        return Counter((place.group, place.topic, str(reason)) for place, reason in still)


def _order(key: tuple[Place, Reason]) -> tuple[str, str, int, str]:
    place, reason = key
    return place.group, place.topic, place.queue_id, reason
