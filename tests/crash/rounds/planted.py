# SPDX-License-Identifier: Apache-2.0
"""Plants bugs that the rounds must catch: `python -m tests.crash.rounds.planted`.

Each plant breaks a rule of copies whose break a test of a single process can't see.
"""

import sys

from tests.crash.process_plants import Planted, main
from tests.crash.rounds import reason_not_to_run

PLANTS = (
    Planted(
        "REPLICATED is acknowledged before any follower has synced",
        "services/commitlog/engine/replicate/in_sync_set.py",
        "        return min(own_flushed_physical_offset, *flushed) if self.counted else own_flushed_physical_offset\n",
        "        del flushed\n        return own_flushed_physical_offset\n",
    ),
    Planted(
        "readers of a synchronous master see what it alone has",
        "services/commitlog/engine/write/marks.py",
        "            visible = replicated\n",
        "            visible = committed\n",
    ),
    Planted(
        "two logs are compared by their ends alone",
        "libs/log/common_history.py",
        "    my_parts, their_parts = _parts(mine, my_end), _parts(theirs, their_end)\n",
        "    return min(my_end, their_end)\n",
    ),
    Planted(
        "services do not look at the durability of an answer",
        "libs/requests/durable.py",
        "    while last.is_late:\n",
        "    while False:\n",
        seed=2546,
    ),
)

if __name__ == "__main__":
    sys.exit(main("rounds", PLANTS, reason=reason_not_to_run()))
