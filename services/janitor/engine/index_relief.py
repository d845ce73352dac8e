# SPDX-License-Identifier: Apache-2.0
"""What the Indexer's disk would gain by deletion, by dry runs of TrimTo.

The Indexer is asked only while that disk is used above disk_forcible_percent: once as long as other files fill it, and
otherwise as often as a bisection over one batch of segments needs. What a trim frees never falls with the offset, so
the fewest segments that free what is needed are found, and no segment goes behind the last one that frees something.
"""

from dataclasses import replace

from services.janitor.config import JanitorConfig
from services.janitor.engine.facts import INDEX_OWNER, Facts
from services.janitor.engine.owners import IndexOwner
from services.janitor.engine.policy import index_need_bytes, is_forcing, reliefs


async def with_index_relief(facts: Facts, index: IndexOwner, policy: JanitorConfig) -> Facts:
    """Add whose files fill the Indexer's disk and how many segments would help. Raises DependencyUnavailable."""
    disk = next((one for one in facts.disks if one.service == INDEX_OWNER), None)
    if disk is None or not is_forcing(disk, policy):
        return facts
    ends = reliefs(facts, policy) or [0]
    told = await index.trim_to(ends[-1], is_dry_run=True)
    known = replace(disk, own_bytes=told.own_bytes)
    disks = tuple(known if one is disk else one for one in facts.disks)
    wanted_bytes = min(told.freed_bytes, index_need_bytes(disk, told.own_bytes, policy))
    end = await _first_that_frees(wanted_bytes, ends, index) if wanted_bytes > 0 and policy.disk_forced else 0
    return replace(facts, disks=disks, relief_end_physical_offset=end)


async def _first_that_frees(wanted_bytes: int, ends: list[int], index: IndexOwner) -> int:
    """Return the first of these ends that frees so many bytes. The last of them does."""
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if (await index.trim_to(ends[middle], is_dry_run=True)).freed_bytes >= wanted_bytes:
            high = middle
        else:
            low = middle + 1
    return ends[high]
