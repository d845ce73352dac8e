# SPDX-License-Identifier: Apache-2.0
"""Reads over several shards: a plan for each shard, put together. Runs on the driver.

The queues of a topic have different numbers at each shard, so positions need no shard. A topic may be missing at some
shards. Without the option `shards` all of it is for a single store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reput.indexer.v1.scan_service_pb2 import ScanPartition

from reput_spark.errors import CallFailed
from reput_spark.read import plan as single
from reput_spark.read import positions
from reput_spark.read.positions import Queue

if TYPE_CHECKING:
    from reput_spark.read.options import Offsets, ReadOptions
    from reput_spark.read.positions import Bounds, Positions

UNKNOWN = "TOPIC_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class Planned:
    """A partition of a plan, and the options with which it is read."""

    options: ReadOptions
    partition: ScanPartition

    def pack(self) -> bytes:
        """Return the partition for `unpack` in another process."""
        return self.options.shard.encode() + b"\n" + self.partition.SerializeToString()


def unpack(options: ReadOptions, packed: bytes) -> Planned:
    """Return a partition of a read with these options."""
    shard, _, partition = packed.partition(b"\n")
    return Planned(at(options, shard.decode()), ScanPartition.FromString(partition))


def at(options: ReadOptions, shard: str) -> ReadOptions:
    """Return the options for a single shard, the same options for a store without shards."""
    return replace(options, shards=(), shard=shard) if options.shards else options


def parts(options: ReadOptions) -> list[ReadOptions]:
    """Return the options for each shard, the same options for a store without shards."""
    return [at(options, name) for name in options.shards] or [options]


def plan(options: ReadOptions) -> list[Planned]:
    """Return the partitions of a batch read. Raises DataLoss, NoMessageAtTime and CallFailed."""
    if not options.shards:
        return [Planned(options, partition) for partition in single.plan(options)]
    own = _own_queues(options)
    found: list[Planned] = []
    groups: list[tuple[str, ...]] = [(topic,) for topic in options.topics] or [()]
    for topics in groups:
        found += _plan_somewhere([_limited(replace(part, topics=topics), own) for part in parts(options)])
    return found


def _plan_somewhere(options: Sequence[ReadOptions]) -> list[Planned]:
    """Plan the same topics at each shard. A topic that some shards lack is read at the others."""
    found: list[Planned] = []
    missing: list[CallFailed] = []
    for part in options:
        try:
            found += [Planned(part, partition) for partition in single.plan(part)]
        except CallFailed as error:
            if not error.details.startswith(UNKNOWN):
                raise
            missing.append(error)
    if len(missing) == len(options):
        raise missing[0]
    return found


def plan_ranges(options: ReadOptions, cut: Mapping[Queue, tuple[int, int]]) -> list[Planned]:
    """Return partitions of exactly these entries: start and end, exclusive, by queue. Raises CallFailed."""
    if not options.shards:
        return [Planned(options, partition) for partition in single.plan_ranges(options, cut)]
    own = _own_queues(options)
    return [
        Planned(part, partition)
        for part in parts(options)
        if (here := {queue: ends for queue, ends in cut.items() if own.get(queue, options.shards[0]) == part.shard})
        for partition in single.plan_ranges(part, here)
    ]


def bounds(options: ReadOptions) -> Bounds:
    """Return the queues of all shards that the options name and that have had a message. Raises CallFailed."""
    found = [positions.bounds(part) for part in parts(options)]
    return {queue: ends for here in found for queue, ends in here.items()}


def bounds_from(options: ReadOptions, begin: Positions, read: Positions) -> Bounds:
    """Return the bounds of all shards. See positions.bounds_from. Raises CallFailed."""
    if not options.shards:
        return positions.bounds_from(options, begin, read)
    own, found = _own_queues(options), dict[Queue, tuple[int, int]]()
    for part in parts(options):
        found |= positions.bounds_from(part, _at_shard(begin, own, part.shard), _at_shard(read, own, part.shard))
    return found


def _at_shard(offsets: Positions, own: Mapping[Queue, str], shard: str) -> Positions:
    return {queue: offset for queue, offset in offsets.items() if own.get(queue) == shard}


def starts(options: ReadOptions, kept: Bounds) -> Positions:
    """Return the start offset of a stream in each queue. Raises DataLoss, NoMessageAtTime, CallFailed."""
    if not options.shards:
        return positions.starts(options, kept)
    own = _own_queues(options)
    return {
        queue: positions.start(at(options, own.get(queue, options.shards[0])), queue, ends)
        for queue, ends in kept.items()
    }


def check_topics(options: ReadOptions, topics: Sequence[str]) -> None:
    """Raise CallFailed, with TOPIC_NOT_FOUND, for a topic that no shard has."""
    for topic in topics:
        missing: list[CallFailed] = []
        for part in parts(options):
            try:
                single.check_topics(part, [topic])
            except CallFailed as error:
                missing.append(error)
        if len(missing) == len(parts(options)):
            raise missing[0]


def _own_queues(options: ReadOptions) -> dict[Queue, str]:
    """Return the shard of each queue that has had a message. Raises CallFailed."""
    return {queue: part.shard for part in parts(options) for queue in positions.bounds(part)}


def _limited(options: ReadOptions, own: Mapping[Queue, str]) -> ReadOptions:
    """Return the options of a shard without the positions of other shards' queues, and of topics that are not read.

    Positions of queues that no shard has are kept, so that they are refused as in a single store.
    """

    def limited(offsets: Offsets) -> Offsets:
        topics = [topic for topic in offsets if not options.topics or topic in options.topics]
        found = {topic: {one: at for one, at in offsets[topic].items() if is_here(topic, one)} for topic in topics}
        return {topic: queues for topic, queues in found.items() if queues}

    def is_here(topic: str, queue_id: int) -> bool:
        return own.get((topic, queue_id), options.shard) == options.shard

    return replace(
        options,
        starting_offsets=limited(options.starting_offsets),
        ending_offsets=limited(options.ending_offsets),
        starting_times_ms=limited(options.starting_times_ms),
        ending_times_ms=limited(options.ending_times_ms),
    )
