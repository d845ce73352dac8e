# SPDX-License-Identifier: Apache-2.0
"""check_queue_ends: checks, after a start from a clean stop, whether the queues still have their ends.

Such a start only lists the files of the queues: each queue is opened at its first use. If a queue has lost units
meanwhile, by a disk error or by hand, its answers would lack messages without an error. So all queues are opened once
in the background, a queue at a time, and the sum of their ends is compared with the sum that the stop saved. If it
differs, or a queue can't be read, all indexes are built anew. An unclean start does the same before it serves.
"""

import asyncio
import logging

from libs.segments.errors import SegmentUnreadable
from services.indexer.engine.follow.reput_state import ReputStates
from services.indexer.engine.tables.queue_sums import LeftQueues
from services.indexer.engine.tables.queues import ConsumeQueueTable

_log = logging.getLogger(__name__)


async def check_queue_ends(queues: ConsumeQueueTable, states: ReputStates) -> None:
    """Compare once, if there is anything to compare. Runs beside the event loop's other tasks and may be cancelled."""
    left = queues.sums.left
    if left is None:
        return
    try:
        found = await _end_sum(queues, left)
    except SegmentUnreadable as error:
        why = str(error)
    except OSError as error:
        _log.error("whether the queues end where they ended is not known: %s", error)
        return
    else:
        if found in (None, left.end_sum):
            return
        why = f"the queues have {found} units, but {left.end_sum} when the Indexer stopped"
    _log.error("%s: all indexes are built anew", why)
    states.request_rebuild()


async def _end_sum(queues: ConsumeQueueTable, left: LeftQueues) -> int | None:
    """Add up the ends. Returns None if queues were cut or removed meanwhile, because the saved sum includes them."""
    found = 0
    for queue in left.queues:
        await asyncio.sleep(0)
        if queues.sums.left is not left:
            return None
        found += queue.end_as_found
    queues.sums.settle(are_as_left=found == left.end_sum)
    return found
