# SPDX-License-Identifier: Apache-2.0
"""The Indexer's answers and the contents of its files, compared with the model.

There are two kinds of questions. Questions at any time may have a short answer or a refusal while the Indexer is
behind, but never a wrong answer. Questions after it caught up must have the model's answer.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from libs.formats.indexes.consume_queue import tags_code
from libs.requests.errors import DependencyUnavailable
from services.commitlog.engine.open_log import OpenLog
from services.indexer.config import IndexerConfig
from services.indexer.engine.answer.pull import PullQuery, PullStatus
from services.indexer.engine.answer.query import KeyQuery, Page, TimeQuery
from services.indexer.engine.answer.tags import parse_tag_expression
from services.indexer.engine.build import build
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.offline_rebuild import rebuild
from services.indexer.errors import NotARecord
from tests.crash.index_contents import differences
from tests.crash.sim.link import Link, Listener
from tests.crash.sim.model import Broken, Placed, expect
from tests.crash.sim.process import Killed, Process
from tests.crash.sim.world import World

PAGE_SIZE = 7
REBUILT = Path("/rebuilt")
QUERY_COUNT_MAX = 4
"""Keys and times that a check asks for."""


async def query_at_any_time(world: World, chance: random.Random) -> str:
    """Pull from some queue. The messages must be the messages that the log has there."""
    assert world.index is not None
    kept = world.model.kept()
    queues = sorted({(one.topic, one.queue_id) for one in kept if one.queue_id >= 0}) or [("orders", 0)]
    topic, queue_id = chance.choice(queues)
    pull = _pull(topic, queue_id, chance.randint(0, 3))
    try:
        result = await world.call(world.index.process, world.index.indexer.answers.puller.pull(pull, wait_s=0))
    except Killed:
        return "query: killed"
    except (DependencyUnavailable, NotARecord) as error:
        return f"query: {error!r}"
    model = world.model
    found = result.found
    for view, position, size in zip(found.views(), found.positions.tolist(), found.sizes.tolist(), strict=True):
        at = view.physical_offset - model.base_physical_offset
        if 0 <= at < len(model.content):
            same = found.records[position : position + size] == model.content[at : at + size]
            expect(same, f"a pull returned bytes that the log does not have at {view.physical_offset}")
        place = (view.topic.decode(), view.queue_id)
        expect(place == (topic, queue_id), f"a pull of {topic}/{queue_id} returned a record of {place}")
        expect(view.queue_offset >= pull.queue_offset, f"a pull from {pull.queue_offset} returned {view.queue_offset}")
    world.count("answers")
    return f"query: {len(result.found.sizes)} messages of {topic}/{queue_id}"


async def check_answers(world: World, chance: random.Random) -> int:
    """All pulls, some keys and some times; how many answers were right."""
    assert world.index is not None
    assert world.log is not None
    log = world.log.log
    end = log.chain.max_physical_offset
    try:
        count = await world.call(world.index.process, _check_answers(world, world.index.indexer, chance))
    except (Killed, DependencyUnavailable):
        return 0
    except Broken:
        if log.chain.max_physical_offset != end:  # a delivery came meanwhile
            return 0
        raise
    world.count("answers", count)
    return count


async def _check_answers(world: World, indexer: Indexer, chance: random.Random) -> int:
    kept = world.model.kept()
    queues = world.model.queued()
    keys: dict[tuple[str, str], list[Placed]] = defaultdict(list)
    for message in kept:
        for key in message.message.all_keys:
            keys[message.topic, key].append(message)
    for (topic, queue_id), messages in queues.items():
        await _check_queue(indexer, topic, queue_id, messages, world.setup.log.delay_levels_ms())
    for topic, key in chance.sample(sorted(keys), min(QUERY_COUNT_MAX, len(keys))):
        query = KeyQuery(topic, key)
        found, token = [], "first"
        while token:
            page = await indexer.answers.queries.by_key(
                query, page_size=PAGE_SIZE, page_token="" if token == "first" else token
            )
            found += _offsets(page)
            token = page.next_page_token
        expected = [one.physical_offset for one in reversed(keys[topic, key])]
        expect(found == expected, f"key {key} of {topic} finds {found}, not {expected}")
    for _ in range(QUERY_COUNT_MAX if kept else 0):
        await _check_time(world, indexer, kept, chance)
    return len(queues) + 2 * QUERY_COUNT_MAX


async def _check_queue(
    indexer: Indexer, topic: str, queue_id: int, messages: list[Placed], delays_ms: Sequence[int]
) -> None:
    name = f"queue {topic}/{queue_id}"
    queue = indexer.indexes.queues.find(topic, queue_id)
    expect(queue is not None, f"{name} does not exist")
    assert queue is not None
    first, end = messages[0].queue_offset, messages[-1].queue_offset + 1
    expect(queue.max_queue_offset == end, f"{name} ends at {queue.max_queue_offset}, not {end}")
    expect(queue.min_queue_offset <= first, f"{name} begins at {queue.min_queue_offset}, not {first}")
    at, found = first, []
    while at < end:
        result = await indexer.answers.puller.pull(_pull(topic, queue_id, at), wait_s=0)
        expect(result.status is PullStatus.FOUND, f"{name}: a pull at {at} of {end} gives {result.status.name}")
        found += [(view.queue_offset, view.physical_offset) for view in result.found.views()]
        at = result.next_queue_offset
    expected = [(one.queue_offset, one.physical_offset) for one in messages]
    expect(found == expected, f"{name}: pulls give {found}, not {expected}")
    codes = queue.read(first, len(messages)).tags_codes.tolist()
    expected_codes = [_tags_code(one, delays_ms) for one in messages]
    expect(codes == expected_codes, f"{name} has the codes {codes}, not {expected_codes}")


def _tags_code(placed: Placed, delays_ms: Sequence[int]) -> int:
    """The code of a queue's unit: of the tag, or the time at which a message of the schedule topic is due."""
    level = placed.message.delay_level
    return placed.store_time_ms + delays_ms[level - 1] if level else tags_code(placed.message.tag)


async def _check_time(world: World, indexer: Indexer, kept: list[Placed], chance: random.Random) -> None:
    topic = chance.choice(kept).topic
    bounds = sorted(chance.choice(kept).store_time_ms + chance.choice((0, 0, 1, -1)) for _ in range(2))
    query = TimeQuery(topic, None, *bounds)
    found: list[int] = []
    token = "first"
    while token:
        page = await indexer.answers.queries.by_time(
            query, page_size=PAGE_SIZE, page_token="" if token == "first" else token
        )
        found += _offsets(page)
        token = page.next_page_token
    queued = [one for (name, _), messages in world.model.queued().items() if name == topic for one in messages]
    chosen = [one for one in queued if bounds[0] <= one.store_time_ms < bounds[1]]
    expected = [one.physical_offset for one in sorted(chosen, key=lambda one: (one.queue_id, one.queue_offset))]
    expect(found == expected, f"{topic} from {bounds[0]} to {bounds[1]} ms gives {found}, not {expected}")


async def check_rebuilt(world: World) -> None:
    """The Indexer's files, after it caught up, are the same as files that are built from the whole log at once."""
    assert world.log is not None
    assert world.index is not None
    await world.call(world.index.process, world.index.indexer.follow.flush.sync_queues())  # units may be in memory only
    config = replace(world.setup.indexer, data_dir=REBUILT)
    first = world.model.min_physical_offset
    if world.setup.shares_disk:
        report = await rebuild(
            world.log_disk,
            config,
            log_data_dir=world.setup.log.data_dir,
            segment_size_bytes=world.setup.log.segment_size_bytes,
            clock=world.clock,
            end_physical_offset=world.log.log.marks.visible.value,
        )
        first = report.start_physical_offset  # a segment whose removal was not finished has no file any more
    else:
        await _follow_from_zero(world, world.log.log, config)
    found = differences(
        world.index_disk,
        world.setup.indexer.data_dir,
        REBUILT,
        index_slot_count=config.index_slot_count,
        min_physical_offset=first,
    )
    expect(not found, f"the indexes differ from a rebuild: {'; '.join(found[:5])}")
    world.count("rebuilds compared")


async def _follow_from_zero(world: World, log: OpenLog, config: IndexerConfig) -> None:
    """Another Indexer, which follows the log from its beginning."""
    process = Process("rebuild", world.index_disk)
    link = Link(lambda: world.log, world.loop.chance, record_count_max=8_192, delay_ms_max=0, listener=Listener())
    with process.running():
        indexer = build(config, process.fs, world.clock, source=link, records=link, on_failure=process.failures.append)

    async def follow() -> None:
        indexer.open()
        indexer.follow.reput.start()
        end = log.marks.visible.value
        while indexer.indexes.reached.indexed_physical_offset < end and not indexer.follow.states.last_error:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await indexer.follow.flush.sync_queues()

    await world.call(process, follow())
    process.die()


def _pull(topic: str, queue_id: int, queue_offset: int) -> PullQuery:
    everything = parse_tag_expression("*", field="tags")
    return PullQuery(topic, queue_id, queue_offset, message_count_max=32, size_bytes_max=1 << 16, tags=everything)


def _offsets(page: Page) -> list[int]:
    return [view.physical_offset for view in page.found.views()]
