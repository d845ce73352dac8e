# SPDX-License-Identifier: Apache-2.0
"""Plants bugs that the part `shards` must catch: `python -m tests.crash.shards.planted`.

Each plant breaks a rule that keeps the order of keys, or the messages, while queues of a topic are split and merged.
A child that opens before the index has the last messages of its parent is not among them: an Indexer that is so far
behind answers late, too, so twelve seeds did not meet it. The unit tests of ParentQueues do.
"""

import sys

from tests.crash.process_plants import Planted, main

PLANTS = (
    Planted(
        "a child is delivered before its parents are settled",
        "services/delivery/engine/receive/positions.py",
        "            elif is_later and keeps_order:\n",
        "            elif has_begun and keeps_order and queue_id not in queues.parents:\n",
    ),
    Planted(
        "a sealed queue still takes messages",
        "services/commitlog/engine/write/topics.py",
        "            sealed_queue_ids=() if share is None else share.sealed_ids,\n",
        "",
    ),
    Planted(
        "a seal is kept in memory alone",
        "libs/formats/config/topic_share.py",
        "    queues = [msgspec.convert(queue, _Queue, from_attributes=True) for queue in share.queues]\n",
        "    queues = [\n"
        "        msgspec.convert(replace(queue, is_sealed=False), _Queue, from_attributes=True)\n"
        "        for queue in share.queues\n"
        "    ]\n",
        seed=2,
    ),
    Planted(
        "an empty queue is finished although its own parents are not",
        "services/delivery/engine/receive/sealed_queues.py",
        "most <= least and not queues.parents.get(queue_id)",
        "most <= least",
    ),
    Planted(
        "a key goes to the queue at the place of its hash modulo the number of queues",
        "libs/shards/route.py",
        "        return self._ranges[at].place if at >= 0 and value <= self._ranges[at].last_hash else None\n",
        "        del at\n        return self.places[value % len(self.places)] if self.places else None\n",
    ),
    Planted(
        "a change that is under way is replaced by the next",
        "libs/formats/config/topic_share.py",
        "        if under_way is not None and self.change not in (None, under_way):\n",
        "        if False and under_way is not None:\n",
    ),
)

if __name__ == "__main__":
    sys.exit(main("shards", PLANTS))
