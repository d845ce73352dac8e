# SPDX-License-Identifier: Apache-2.0
"""Selects dead letters: the offsets in their topic that a caller selects, and the letters that pass its condition."""

from msgspec import Struct

from libs.requests.errors import DependencyUnavailable, TopicNotFound
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.messages import Found, Wanted

SIZE_BYTES_MAX = 1 << 20
"""Size of the letters of a read; a single larger letter still fits."""


class Selection(Struct, frozen=True):
    """The selected letters: all fields that are set must hold."""

    places: tuple[tuple[int, int], ...] = ()
    """Queue ids and queue offsets; empty: all."""
    where: str = ""
    """A condition on the properties of letters."""
    start_ms: int | None = None
    end_ms: int | None = None
    """`start_ms`, `end_ms`: store times of letters, in milliseconds since the epoch; the end is exclusive."""


class Stretch(Struct):
    """A range of a queue that is still to be read, and the first queue offset of the queue."""

    queue_id: int
    position: int
    end: int
    least: int

    @property
    def count(self) -> int:
        """Number of queue offsets in the range."""
        return max(0, self.end - self.position)


async def bounds_of(index: Index, topic: str) -> dict[int, tuple[int, int]]:
    """Return where the queues of a topic begin and end; empty if the topic does not exist."""
    try:
        return dict(await index.bounds(topic))
    except TopicNotFound:
        return {}


async def stretches(index: Index, topic: str, selection: Selection) -> list[Stretch]:
    """Return the ranges to read, by queue and offset. Letters that are written later are not in them."""
    found: list[Stretch] = []
    for queue_id, (least, most) in sorted((await bounds_of(index, topic)).items()):
        start, end = least, most
        if selection.start_ms is not None:
            start = max(start, await index.offset_at(topic, queue_id, selection.start_ms))
        if selection.end_ms is not None:
            end = min(end, await index.offset_at(topic, queue_id, selection.end_ms))
        if not selection.places:
            found.append(Stretch(queue_id, start, end, least))
            continue
        offsets = sorted({offset for one, offset in selection.places if one == queue_id and start <= offset < end})
        found += [Stretch(queue_id, offset, offset + 1, least) for offset in offsets]
    return [stretch for stretch in found if stretch.count]


async def read(index: Index, topic: str, stretch: Stretch, where: str, count: int) -> list[Found]:
    """Return the next letters of a range that pass a condition, maybe none, and shorten the range.

    Raises DependencyUnavailable.
    """
    pulled = await index.pull(
        topic,
        stretch.queue_id,
        stretch.position,
        wanted=Wanted(where=where),
        count=min(count, stretch.count),
        size_bytes=SIZE_BYTES_MAX,
        wait_s=0,
    )
    if pulled.next_queue_offset <= stretch.position:
        raise DependencyUnavailable("indexer", f"it does not have {topic} at the moment")
    found = [one for one in pulled.found if stretch.position <= one.queue_offset < stretch.end]
    stretch.position = min(pulled.next_queue_offset, stretch.end)
    return found
