# SPDX-License-Identifier: Apache-2.0
"""check_queue_ends: looks, after a start that believed a clean stop, whether the queues end where they ended.

Such a start only lists the files of the queues: each is opened when somebody first asks for it. If one has lost units
meanwhile, by a disk or by somebody's hand, its answers lack messages without a word. So all queues are opened once in
the background, one at a time, and what they end with is compared with the sum that the stop wrote down; if it differs,
or one can't be read, all indexes are built anew. An unclean start does the same before it serves.
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
    """Add up the ends. Returns None if queues were cut or removed meanwhile, because the sum speaks of others then."""
    found = 0
    for queue in left.queues:
        await asyncio.sleep(0)
        if queues.sums.left is not left:
            return None
        found += queue.end_as_found
    queues.sums.settle(are_as_left=found == left.end_sum)
    return found
