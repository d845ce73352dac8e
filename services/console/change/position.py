# SPDX-License-Identifier: Apache-2.0
"""The move of a group in a topic: with Delivery's dry run for a group that shares messages, else queue by queue."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace
from reput_client import ConsumerOffset, Queue
from reput_client.aio import AsyncClient
from reput_client.core.types import Place as Target

from libs.figures import many, verb
from services.console.ask.groups import group_fact
from services.console.ask.store import Asking, together
from services.console.change.place import NAMES, Place, place_of
from services.console.change.prepared import Apply, Arguments, Prepared, Result, with_refusal
from services.console.pages.change import Input, Preview, address, digest
from services.console.pages.groups import GroupFacts
from services.console.pages.page import command

TOPICS_LISTED_MAX = 500
QUEUES_MOVED_MAX = 256
"""Queues of a group that keeps offsets: a time is looked up in each of them."""
COLUMNS = ("Queue", "From", "To", "Passed over", "Delivered again", "In flight that count as settled")


class Move(NamedTuple):
    """The move of a group in a queue."""

    queue_id: int
    from_queue_offset: int | None
    """None if the group had no position there."""
    to_queue_offset: int
    settled_count: int = 0
    """Messages in flight that count as settled."""

    @property
    def passed_count(self) -> int:
        """Messages that the group does not get."""
        return max(self.to_queue_offset - self._start, 0)

    @property
    def repeated_count(self) -> int:
        """Messages that the group gets again."""
        return max(self._start - self.to_queue_offset, 0)

    @property
    def _start(self) -> int:
        return self.to_queue_offset if self.from_queue_offset is None else self.from_queue_offset


class Wanted(NamedTuple):
    """The move that is wanted."""

    facts: GroupFacts
    topic: str
    place: Place

    @property
    def is_shared(self) -> bool:
        """Whether the group shares the messages of the topic; else it keeps offsets."""
        share = self.facts.share
        return share is not None and any(queue.topic == self.topic for queue in share.queues)


async def prepare_move(asking: Asking, group: str, arguments: Arguments) -> Prepared:
    """Prepare the move of a group."""
    facts = await group_fact(asking, group)
    topic = arguments.get("topic", "")
    page = Preview(
        commands=(command("groups", "reset", group, topic or "TOPIC", "--to", "TIME", "--dry-run"),),
        gaps=asking.gaps,
        is_found=facts is not None,
        title=f"Move group {group}",
        name=group,
        back=address("groups", group),
        inputs=_inputs(facts, arguments),
    )
    if facts is None or not topic:
        return Prepared(page)
    return await with_refusal(asking, page, _prepared(asking, page, facts, arguments))


async def _prepared(asking: Asking, page: Preview, facts: GroupFacts, arguments: Arguments) -> Prepared:
    """Raises ValueError and ReputError."""
    wanted = Wanted(facts, arguments["topic"], place_of(arguments, asking.store.now))
    moves = await _moves(asking, wanted)
    if not moves:
        raise ValueError(f"topic {wanted.topic} has no queues with messages")
    return Prepared(_preview(replace(page, gaps=asking.gaps), wanted, moves), _apply(wanted))


def _inputs(facts: GroupFacts | None, arguments: Arguments) -> tuple[Input, ...]:
    topics = dict.fromkeys(queue.topic for queue in facts.queues) if facts is not None else {}
    return (
        Input(
            "topic",
            "Topic",
            arguments.get("topic", ""),
            tuple((name, name) for name in list(topics)[:TOPICS_LISTED_MAX]),
        ),
        Input("to", "To", arguments.get("to", ""), NAMES),
        Input("at", "Time or offset", arguments.get("at", ""), hint="-1h, yesterday 14:05, QUEUE/OFFSET"),
    )


def _preview(page: Preview, wanted: Wanted, moves: Sequence[Move]) -> Preview:
    """Return the page with the moves. The place where it goes is compared again only if it was named exactly."""
    group, topic, place = wanted.facts.name, wanted.topic, wanted.place
    is_exact = place.kind in ("time", "offset")
    return replace(
        page,
        commands=_commands(wanted),
        summary=f"Group {group} moves in {many(len(moves), 'queue')} of topic {topic} to {place.text}.",
        warnings=_warnings(moves),
        columns=COLUMNS,
        rows=tuple((*move[:3], move.passed_count, move.repeated_count, move.settled_count) for move in moves),
        verb="Move the group",
        carried=(("topic", topic), ("to", place.kind), ("at", place.at)),
        state=digest(
            (move.queue_id, move.from_queue_offset, move.to_queue_offset if is_exact else 0) for move in moves
        ),
        stale=f"group {group} is not where it was: it receives, or was moved meanwhile. End its members, or pause it",
    )


def _commands(wanted: Wanted) -> tuple[str, ...]:
    group, topic, place = wanted.facts.name, wanted.topic, wanted.place
    if place.kind == "offset":
        queue_id, offset = map(str, place.queue_offset)
        return (command("groups", "commit", group, topic, "--queue", queue_id, "--offset", offset),)
    reset = ("groups", "reset", group, topic, "--to", place.word)
    return (command(*reset, "--dry-run"), command(*reset))


def _warnings(moves: Sequence[Move]) -> tuple[str, ...]:
    passed, repeated, settled = (
        sum(move.passed_count for move in moves),
        sum(move.repeated_count for move in moves),
        sum(move.settled_count for move in moves),
    )
    new = sum(move.from_queue_offset is None for move in moves)
    told = (
        (new, f"It gets a position in {many(new, 'queue')} where it had none."),
        (passed, f"{many(passed, 'message')} {verb(passed, 'is', 'are')} passed over and never delivered."),
        (repeated, f"{many(repeated, 'message')} {verb(repeated, 'is', 'are')} delivered again."),
        (settled, f"{many(settled, 'message')} in flight {verb(settled, 'counts', 'count')} as settled."),
    )
    return tuple(text for count, text in told if count) or ("It is there already.",)


async def _moves(asking: Asking, wanted: Wanted) -> list[Move]:
    """Return the moves, and make none. Raises ValueError and ReputError."""
    group, topic, place = wanted.facts.name, wanted.topic, wanted.place
    if wanted.is_shared:
        if place.kind == "offset":
            raise ValueError(f"group {group} shares {topic} and settles each message: it has no offset to set")
        moves = await asking.client.share_groups.reset(group, topic, _target(place), dry_run=True)
        return [Move(one.queue_id, one.from_queue_offset, one.to_queue_offset, one.settled_count) for one in moves]
    kept = {queue.queue_id: queue.queue_offset for queue in wanted.facts.queues if queue.topic == topic}
    if not kept:
        raise ValueError(f"group {group} has no position in topic {topic}")
    queues = {queue.queue_id: queue async for queue in asking.client.queues.list(topic)}
    if place.kind == "offset":
        return [_offset_move(topic, place, kept, queues)]
    if len(queues) > QUEUES_MOVED_MAX:
        raise ValueError(
            f"topic {topic} has {len(queues)} queues: the command moves a group in more than {QUEUES_MOVED_MAX}"
        )
    targets = await together(_offset_at(asking, queue, place) for queue in queues.values())
    return [Move(queue_id, kept.get(queue_id), target) for queue_id, target in zip(queues, targets, strict=True)]


def _offset_move(topic: str, place: Place, kept: dict[int, int], queues: dict[int, Queue]) -> Move:
    """Return the move to an offset of a queue. Raises ValueError for a place that no reader can have."""
    queue_id, offset = place.queue_offset
    queue = queues.get(queue_id)
    if queue is None and queue_id not in kept:
        raise ValueError(f"topic {topic} has no queue {queue_id} with messages")
    end = queue.max_queue_offset if queue is not None else 0
    if offset > end:
        raise ValueError(f"queue {queue_id} of {topic} ends at offset {end}: at must be 0 to {end}, not {offset}")
    return Move(queue_id, kept.get(queue_id), offset)


async def _offset_at(asking: Asking, queue: Queue, place: Place) -> int:
    if place.kind == "time":
        return await asking.client.queues.offset_by_time(queue.topic, queue.queue_id, place.time_ms)
    return queue.min_queue_offset if place.kind == "earliest" else queue.max_queue_offset


def _target(place: Place) -> Target:
    return place.time_ms if place.kind == "time" else place.kind  # type: ignore[return-value]  # no offset here


def _apply(wanted: Wanted) -> Apply:
    group, topic, place = wanted.facts.name, wanted.topic, wanted.place

    async def apply(client: AsyncClient) -> Result:
        if place.kind == "offset":
            queue_id, offset = place.queue_offset
            await client.groups.commit(group, [ConsumerOffset(topic, queue_id, offset)])
            return Result(f"Group {group} reads queue {queue_id} of topic {topic} from offset {offset:,} on.")
        if wanted.is_shared:
            moved = len(await client.share_groups.reset(group, topic, _target(place)))
        else:
            moved = len(await client.groups.reset(group, topic, _target(place)))
        return Result(f"Group {group} was moved in {many(moved, 'queue')} of topic {topic} to {place.text}.")

    return apply
