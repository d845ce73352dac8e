# SPDX-License-Identifier: Apache-2.0
"""The actions of a simulation's steps: clients' calls, faults, starts and stops.

Each takes its chance from a seed of its own, so that a step does the same when other steps before it are left out, as
far as the world is the same.
"""

import asyncio
import errno
import random
import re
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

from libs.formats.records.host import Host
from libs.machine import failpoints
from libs.machine.testing.faulty_fs import Fault
from libs.machine.testing.memory_fs import PowerCut
from libs.requests.errors import ServiceError
from libs.segments.errors import StoreFull, SyncFailed
from services.commitlog.errors import AppendsRefused, StoreSealed
from tests.crash.sim import checks
from tests.crash.sim.model import NUMBER_DIGIT_COUNT, Message, expect
from tests.crash.sim.process import Killed, Process, current_process, pass_failpoint
from tests.crash.sim.world import World
from tests.crash.sim.writers import SentBatch, WriterClient
from tests.support import commitlog as support

Action = Callable[[World, random.Random], Awaitable[str]]

BORN_HOST = Host.parse("10.1.2.3:4567").to_bytes()
TOPICS = ("orders", "payments", "audit")
TAGS = ("", "", "a", "b")
KEYS = ("", "", "k1", "k2", "k1 k2", "k3 k1 k3")
DELAY_LEVELS = (0,) * 12 + (1, 1, 2)
FAILPOINTS = sorted(
    {
        name
        for package in ("libs", "services")
        for path in (Path(__file__).parents[3] / package).rglob("*.py")
        for name in re.findall(r'^ +failpoint\("([^"]+)"\)', path.read_text(), re.MULTILINE)
    }
)
"""The names of all failpoints that there are, so the meaning of a seed changes with them."""
PAUSES_S = (0, 0, 0.0005, 0.004, 0.03)
"""Between a step's beginning and a batch: some come while others are being synced."""
OPERATIONS = (
    *("sync", "sync", "create_mapped", "reserve", "write_atomic", "write_atomic", "append", "sync_directory", "remove"),
)


def make_messages(world: World, chance: random.Random) -> list[Message]:
    """A batch that was never sent before."""
    messages = []
    count = chance.choice((1, 1, 2, 3, 8))
    for index in range(count):
        number = world.counts.get("sent messages", 0)
        world.count("sent messages")
        size_max = chance.choice((20, 200, 200, 2_000, world.setup.log.segment_size_bytes // 3))
        has_unique_id = chance.random() < 0.3
        message = Message(
            number=number,
            topic=chance.choice(TOPICS),
            queue_id=chance.choice((-1, 0, 1, 1, 3)),
            body=b"%0*d" % (NUMBER_DIGIT_COUNT, number) + chance.randbytes(chance.randint(0, size_max)),
            tag=chance.choice(TAGS),
            keys=chance.choice(KEYS),
            unique_id=f"U{number}" if has_unique_id else "",
            delay_level=chance.choice(DELAY_LEVELS),
            is_first=index == 0,
        )
        messages.append(message)
        world.model.sent[number] = message
    return messages


async def send(world: World, messages: list[Message], durability: int, pause_s: float) -> str:
    """Append a batch, after a while, and record the outcome."""
    await asyncio.sleep(pause_s)
    if world.log is None:
        world.model.refuse(messages)
        return "nobody listens"
    log, groups, process, model = world.log.log, world.log.groups, world.log.process, world.model
    was_sealed = world.sealed_at is not None
    parts = [
        support.message(
            one.body, one.topic, queue_id=None if one.queue_id < 0 else one.queue_id, properties=one.properties
        )
        for one in messages
    ]
    request = support.request(*parts, durability=durability)

    async def appended() -> tuple[int, int]:
        batch = await groups.append(request, BORN_HOST)
        places = (memoryview(column).cast("q") for column in (batch.physical_offsets, batch.queue_offsets))
        model.place(messages, *places)
        return batch.end_physical_offset, await support.durability_of(log, batch)

    try:
        end, reached = await world.call(process, appended())
    except Killed:
        return "killed"
    except (StoreSealed, AppendsRefused, StoreFull, ServiceError) as error:
        if messages[0].physical_offset == -1:
            model.refuse(messages)
        return type(error).__name__
    except OSError as error:
        return f"unknown ({type(error).__name__})"
    expect(not was_sealed, "a sealed store took a batch")
    is_durable = reached == 2
    if is_durable and world.sealed_at is not None:
        expect(end <= world.sealed_at, "a sealed store acknowledged a batch as durable")
    world.acknowledged(end, is_durable)
    world.count("acknowledged messages", len(messages))
    return "durable" if is_durable else "in memory"


async def append(world: World, chance: random.Random) -> str:
    """Some batches at once."""
    batches = [(make_messages(world, chance), chance.choice((0, 0, 1, 2))) for _ in range(chance.choice((1, 1, 2, 5)))]
    if world.log is None:
        for messages, _ in batches:
            world.model.refuse(messages)
        return "append: nobody listens"
    is_at_once = chance.random() < 0.5
    pauses_s = [0 if is_at_once else chance.choice(PAUSES_S) for _ in batches]
    outcomes = await asyncio.gather(
        *(send(world, *batch, pause_s) for batch, pause_s in zip(batches, pauses_s, strict=True))
    )
    sizes = [len(messages) for messages, _ in batches]
    return f"append {sizes}: {', '.join(outcomes)}"


async def send_as_writer(world: World, client: WriterClient, sequence: int, pause_s: float, *, is_alone: bool) -> str:
    """Send a batch of a writer, after a while, and record the outcome."""
    await asyncio.sleep(pause_s)
    if world.log is None or sequence >= len(client.batches):
        return "nobody listens"
    log, process, batch = world.log.log, world.log.process, client.batches[sequence]
    is_first, batch.was_sent = is_alone and not batch.was_sent, True
    parts = [
        support.message(
            one.body, one.topic, queue_id=None if one.queue_id < 0 else one.queue_id, properties=one.properties
        )
        for one in batch.messages
    ]
    request = support.request(*parts, durability=batch.durability, writer=client.writer(sequence))

    async def appended() -> tuple[int, int, bool]:
        stored = await log.pipeline.append(request, BORN_HOST)
        world.writers.stored(client, sequence, stored)
        return stored.end_physical_offset, await support.durability_of(log, stored), stored.is_repeated

    try:
        end, reached, is_repeated = await world.call(process, appended())
    except Killed:
        return "killed"
    except (ServiceError, StoreFull) as error:
        world.writers.refused(client, sequence, error, is_first=is_first)
        return type(error).__name__
    except OSError as error:
        return f"unknown ({type(error).__name__})"
    world.acknowledged(end, reached == 2)
    world.count("repeated batches" if is_repeated else "batches of writers")
    return ("there already, " if is_repeated else "") + ("durable" if reached == 2 else "in memory")


async def append_as_writer(world: World, chance: random.Random) -> str:
    """The next batch of a writer, or a batch that it has sent before, sometimes twice at once."""
    client = world.writers.client(chance.choice(("w0", "w1", "w2")))
    is_old = chance.random() < 0.4
    sequence = chance.randrange(len(client.batches)) if client.batches and is_old else len(client.batches)
    if client.batches and not client.batches[-1].is_alive(world.model):
        sequence = min(sequence, len(client.batches) - 1)
    if sequence == len(client.batches):
        client.batches.append(SentBatch(_stamped(make_messages(world, chance)), chance.choice((0, 0, 1, 2))))
    elif client.batches[sequence].is_lost(world.model):
        client.batches[sequence] = SentBatch(_stamped(make_messages(world, chance)), chance.choice((0, 0, 1, 2)))
    if sequence == 0 and client.batches[0].is_alive(world.model) and world.writers.may_be_forgotten(client, 0):
        return f"batch 0 of {client.name} would count as new"
    pauses_s = [chance.choice(PAUSES_S) for _ in range(chance.choice((1, 1, 2)))]
    is_alone = len(pauses_s) == 1
    outcomes = await asyncio.gather(
        *(send_as_writer(world, client, sequence, pause_s, is_alone=is_alone) for pause_s in pauses_s)
    )
    return f"append batch {sequence} of {client.name}: {', '.join(outcomes)}"


def _stamped(messages: list[Message]) -> list[Message]:
    messages[0].is_stamped = True
    return messages


async def change_topic(world: World, chance: random.Random) -> str:
    """A topic is made, changed or deleted."""
    name, queue_count = world.topics.draw(chance)
    if world.log is None or world.log.process.failures:
        return "change topic: nobody listens"
    topics, process = world.log.log.topics, world.log.process
    is_there = topics.find(name) is not None
    if not is_there and queue_count == 0:
        return f"change topic: there is no {name}"
    if queue_count == 0:
        work: Coroutine[object, object, object] = topics.delete(name)
    elif is_there:
        work = topics.update(name, write_queue_count=queue_count)
    else:
        work = topics.create(name, write_queue_count=queue_count)
    world.topics.begun(name, queue_count)
    try:
        await world.call(process, work)
    except Killed:
        return "change topic: killed"
    except OSError as error:
        return f"change topic: {error!r}"
    world.topics.answered(name, queue_count)
    world.count("changes of topics")
    return f"change topic: {name} has {queue_count} queues"


async def pass_time(world: World, chance: random.Random) -> str:
    """Let time pass for the background work."""
    duration_ms = chance.choice((1, 10, 100, 500, 2_500))
    await asyncio.sleep(duration_ms / 1000)
    return f"{duration_ms} ms pass"


async def step_clock(world: World, chance: random.Random) -> str:
    """The clock is set."""
    step_ms = chance.choice((-60_000, -2_000, -500, 3_000, 3_600_000))
    world.clock.step_ms += step_ms
    return f"the clock is set by {step_ms} ms"


async def start(world: World, chance: random.Random) -> str:
    """Start services that are down."""
    del chance
    started = []
    if world.log is None:
        await world.start_log()
        started.append("log" if world.log else "log (failed)")
    if world.index is None:
        await world.start_index()
        started.append("indexer" if world.index else "indexer (failed)")
    return f"start {' and '.join(started) or 'nothing'}"


async def stop(world: World, chance: random.Random) -> str:
    """Stop a service or both in order."""
    which = chance.choice(("log", "indexer", "both"))
    if which != "indexer":
        await world.stop_log()
    if which != "log":
        await world.stop_index()
    return f"stop {which}"


async def kill(world: World, chance: random.Random) -> str:
    """Kill a service or both."""
    which = chance.choice(("log", "indexer", "both"))
    if which != "indexer":
        world.kill_log()
    if which != "log":
        world.kill_index()
    return f"kill {which}"


async def cut_power(world: World, chance: random.Random) -> str:
    """The power of a machine fails. Any part of unsynced data may be left."""
    ratio = chance.choice((0.0, 0.0, 0.5, 0.9, 1.0))
    names = chance.choice((0.0, 0.5, 1.0))
    torn = chance.choice((0.0, 0.0, 0.3))
    disk = chance.choice((world.log_disk, world.index_disk))
    world.cut_power(disk, PowerCut(chance, page_ratio=ratio, name_ratio=names, torn_ratio=torn))
    which = "the machine" if world.setup.shares_disk else "the log" if disk is world.log_disk else "the indexer"
    return f"power cut of {which}: pages {ratio}, names {names}, torn {torn}"


async def die_later(world: World, chance: random.Random) -> str:
    """A service dies at a coming call on the disk."""
    process = _running(world, chance)
    if process is None:
        return "nobody is there to die"
    ahead = chance.choice((1, 2, 3, 5, 8, 13, 30))
    process.die_ahead(ahead)
    return f"the {process.name} will die at call {ahead} from now"


async def fail_later(world: World, chance: random.Random) -> str:
    """A coming call on the disk fails."""
    process = _running(world, chance)
    if process is None:
        return "nobody is there to fail"
    operation, ahead = chance.choice(OPERATIONS), chance.choice((1, 1, 2, 3, 8))
    code = chance.choice((errno.EIO, errno.ENOSPC, errno.EROFS))
    process.fail_call(operation, ahead, Fault(code, chance.random()))
    return f"{operation} of the {process.name} will fail with {errno.errorcode[code]} at call {ahead} from now"


async def meet_failpoint(world: World, chance: random.Random) -> str:
    """The next process that comes to a failpoint dies there, or gets an error."""
    name, is_death, ordinal = chance.choice(FAILPOINTS), chance.random() < 0.5, chance.choice((1, 1, 2, 4))
    left = [ordinal]

    def act() -> None:
        pass_failpoint()
        process = current_process()
        left[0] -= 1
        if left[0] != 0 or process is None:
            return
        if is_death:
            process.die()
            raise Killed
        process.failed_calls.append(name)
        raise failpoints.FailpointRaised(name)

    failpoints.arm(name, act)
    return f"{'death' if is_death else 'an error'} waits at {name}, time {ordinal}"


async def fill_disk(world: World, chance: random.Random) -> str:
    """The disk is full, or has room again."""
    del chance
    world.set_disk_full(not world.is_disk_full)
    return "the disk is full" if world.is_disk_full else "the disk has room"


async def delete(world: World, chance: random.Random) -> str:
    """Delete old segments; the Indexer trims with them, or not."""
    if world.log is None or world.log.process.failures:
        return "delete: nobody listens"
    log, process = world.log.log, world.log.process
    world.look()
    bases = [segment.base_physical_offset for segment in log.chain.segments][: chance.choice((1, 1, 2))]
    bases = [base for base in bases if base + world.setup.log.segment_size_bytes <= world.model.seen_physical_offset]
    if not bases:
        return "delete: nothing to delete"
    bound = bases[-1] + world.setup.log.segment_size_bytes
    before, world.deletion_bound = world.deletion_bound, max(world.deletion_bound, bound)
    try:
        deletions = await world.call(process, log.segments.delete(bases, allow_unindexed=False))
    except Killed:
        return "delete: killed"
    except OSError as error:
        world.model.trimmed(log.chain.min_physical_offset)
        return f"delete: {error}"
    world.model.trimmed(log.chain.min_physical_offset)
    world.deletion_bound = max(before, log.chain.min_physical_offset)
    freed_count = sum(deletion.freed_bytes > 0 for deletion in deletions)
    world.count("deleted segments", freed_count)
    return f"delete {len(bases)} segments: {freed_count} gone"


async def trim(world: World, chance: random.Random) -> str:
    """The Indexer forgets records that the log no longer has."""
    del chance
    if world.index is None or world.log is None:
        return "trim: nobody listens"
    with world.index.process.running():
        try:
            trimmed = world.index.indexer.upkeep.trim.trim(world.model.min_physical_offset)
        except Killed:
            return "trim: killed"
        except (OSError, ServiceError) as error:
            return f"trim: {error!r}"
    return f"trim: {trimmed.queue_file_count} queue files, {trimmed.index_file_count} index files"


async def remove_queues(world: World, chance: random.Random) -> str:
    """Old segments go, as in `delete`, and then the queues that expired with them."""
    deleted = await delete(world, chance)
    if world.index is None or world.index.process.failures:
        return f"{deleted}; remove queues: nobody listens"
    indexer, process = world.index.indexer, world.index.process
    try:
        removed = await world.call(process, indexer.upkeep.removal.remove_expired(dry_run=chance.random() < 0.1))
    except Killed:
        return f"{deleted}; remove queues: killed"
    except (OSError, SyncFailed, ServiceError) as error:
        return f"{deleted}; remove queues: {error!r}"
    world.count("queues removed", len(removed.ends))
    return f"{deleted}; remove queues: {len(removed.ends)}"


async def begin_again(world: World, chance: random.Random) -> str:
    """The next message of a queue has queue offset 0, as if another program had dropped the queue."""
    if world.log is None or world.log.process.failures:
        return "begin again: nobody listens"
    name = chance.choice(TOPICS), chance.choice((0, 1, 3))
    world.model.begun_again.add(name)
    world.log.log.topics.table.set_next_queue_offset(name[0].encode(), name[1], 0)
    world.count("queues begun again")
    return f"begin again: {name[0]}/{name[1]}"


async def rebuild(world: World, chance: random.Random) -> str:
    """An operator has the indexes built again while they are in use."""
    del chance
    if world.index is None or world.index.process.failures:
        return "rebuild: nobody listens"
    with world.index.process.running():
        try:
            world.index.indexer.upkeep.rebuild.begin()
        except (ServiceError, SyncFailed, OSError) as error:
            return f"rebuild: {error!r}"
    world.count("rebuilds begun")
    return "rebuild: begun"


async def look(world: World, chance: random.Random) -> str:
    """Read the whole log."""
    del chance
    if world.log is None:
        return "look: nobody listens"
    world.look()
    return f"look: {len(world.model.kept())} messages up to {world.model.seen_physical_offset}"


async def query(world: World, chance: random.Random) -> str:
    """Ask for anything at any time: an answer may be refused or incomplete, but not wrong."""
    if world.index is None:
        return "query: nobody listens"
    return await checks.query_at_any_time(world, chance)


async def catch_up(world: World, chance: random.Random) -> str:
    """Wait for the Indexer, then compare all of its answers with the model."""
    if not await world.caught_up():
        return "catch up: somebody is gone"
    world.look()
    count = await checks.check_answers(world, chance)
    return f"catch up: {count} answers are right"


ACTIONS: dict[str, tuple[int, Action]] = {
    "append": (30, append),
    "append_as_writer": (18, append_as_writer),
    "change_topic": (8, change_topic),
    "pass_time": (20, pass_time),
    "step_clock": (2, step_clock),
    "start": (6, start),
    "stop": (4, stop),
    "kill": (4, kill),
    "cut_power": (8, cut_power),
    "die_later": (4, die_later),
    "fail_later": (3, fail_later),
    "meet_failpoint": (4, meet_failpoint),
    "fill_disk": (4, fill_disk),
    "delete": (5, delete),
    "trim": (3, trim),
    "remove_queues": (3, remove_queues),
    "begin_again": (3, begin_again),
    "rebuild": (1, rebuild),
    "look": (4, look),
    "query": (6, query),
    "catch_up": (4, catch_up),
}
"""Weight and code of each kind of step."""


def _running(world: World, chance: random.Random) -> Process | None:
    """The process of a running service."""
    processes = [server.process for server in (world.log, world.index) if server is not None]
    return chance.choice(processes) if processes else None
