# SPDX-License-Identifier: Apache-2.0
"""IndexRelief: finds by dry runs of TrimTo how many segments have to be deleted for the Indexer's disk.

The Indexer is asked only while this disk is used above disk_forcible_percent. It is asked once if other files fill the
disk, and otherwise as often as a bisection over a batch of segments needs. The bytes that a trim frees never fall with
the offset, so the bisection finds the fewest segments that free the needed bytes. No segment is deleted after the last
segment that frees bytes.
"""

from msgspec.structs import replace

from services.janitor.config import JanitorConfig
from services.janitor.engine.facts import INDEX_OWNER, Facts
from services.janitor.engine.owners import IndexOwner
from services.janitor.engine.policy import index_need_bytes, is_forcing, reliefs


async def with_index_relief(facts: Facts, index: IndexOwner, policy: JanitorConfig) -> Facts:
    """Add to the facts the index files' bytes on the Indexer's disk, and the end of the segments to delete for it.

    Raises DependencyUnavailable.
    """
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
    """Return the first of these ends that frees so many bytes. The last end always frees enough."""
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if (await index.trim_to(ends[middle], is_dry_run=True)).freed_bytes >= wanted_bytes:
            high = middle
        else:
            low = middle + 1
    return ends[high]
