# SPDX-License-Identifier: Apache-2.0
"""Both engines on disks in memory: an Indexer follows a log that loses tails, files or its past, or another log.

The promise is the same in all cases: once the Indexer is at the end, its queue files are equal to the files of an
Indexer that was built anew from the same log, and no queue offset is given twice.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import segment_service_pb2 as segment_pb

from libs.formats import store_layout
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs, everything_survives, nothing_survives
from services.commitlog.engine.open_log import OpenLog
from services.indexer.engine.build import build
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.indexer import Indexer
from tests.crash.sim.link import Link, Listener, Server
from tests.crash.sim.process import Process
from tests.support import served_commitlog as log_served
from tests.support import served_indexer as index_served
from tests.support.commitlog import DATA_DIR, SEGMENT_SIZE, Machine, append, fill, message, records
from tests.support.indexer import SMALL, files
from tests.support.patience import eventually
from tests.support.service_process import Refusal

QUEUES = Path("/data/consumequeue")


class Follower:
    """An Indexer's disk, and the log that it follows."""

    def __init__(self) -> None:
        self.fs = MemoryFs()

    @contextlib.asynccontextmanager
    async def following(self, machine: Machine, log: OpenLog, *, is_other: bool = False) -> AsyncIterator[Indexer]:
        """Follow a log for a block. At its begin everything is indexed and the queues are compared.

        If it is another log than before, the Indexer waits until a rebuild is requested.
        """
        server = Server(log, Process("log", machine.fs))
        link = Link(lambda: server, random.Random(0), record_count_max=100, delay_ms_max=0, listener=Listener())
        indexer = build(SMALL, self.fs, ManualClock(), source=link, records=link, on_failure=machine.failures.append)
        indexer.open()
        indexer.start()
        try:
            if is_other:
                before = files(self.fs, QUEUES)
                await eventually(lambda: indexer.follow.reput.state is ReputState.OTHER_LOG)
                assert files(self.fs, QUEUES) == before
                indexer.follow.states.request_rebuild()
            await caught_up(indexer, log)
            yield indexer
        finally:
            indexer.drain()
            await indexer.close()

    async def die(self) -> None:
        """Lose the power."""
        self.fs.crash(nothing_survives)


async def caught_up(indexer: Indexer, log: OpenLog) -> None:
    """Wait until everything is indexed and the queues were compared."""
    await eventually(
        lambda: (
            indexer.follow.reput.state is ReputState.LIVE
            and indexer.indexes.reached.indexed_physical_offset == log.marks.visible.value
            and indexer.follow.reput.queue_ends.is_done
        )
    )


async def check(follower: Follower, machine: Machine) -> None:
    """Compare the Indexer's queues with the queues of a new Indexer, and the log's queue offsets with each other."""
    async with machine.running() as log:
        async with follower.following(machine, log):
            pass
        fresh = Follower()
        async with fresh.following(machine, log):
            pass
        given = [(found.topic, found.queue_id, found.queue_offset) for found in records(log)]
    assert files(follower.fs, QUEUES) == files(fresh.fs, QUEUES)
    assert len(set(given)) == len(given)
    assert not machine.failures


async def write(log: OpenLog, count: int, text: str, *, durability: int = 1) -> None:
    """Append messages of different sizes to two topics."""
    for index in range(count):
        body = f"{text}-{index}".encode() * (1 + index % 5)
        await append(log, message(body, topic="even" if index % 2 else "odd"), durability=durability)


async def started(machine: Machine) -> OpenLog:
    """Start, and wait for the sync of each start, so that records from here on are lost with the power."""
    log = await machine.start()
    await asyncio.sleep(0)  # the loops that save begin
    await log.snapshot.save()
    return log


async def lose_power(machine: Machine, log: OpenLog) -> None:
    """Lose the unsynced records. There must be some."""
    end = log.chain.max_physical_offset
    await machine.kill(log, nothing_survives)
    async with machine.running() as found:
        assert found.chain.max_physical_offset < end


async def lose_tail(machine: Machine, text: str) -> None:
    """Start, append synced and unsynced records, and lose the power."""
    log = await started(machine)
    await write(log, 3, text, durability=2)
    await write(log, 4, f"{text} unsynced")
    await lose_power(machine, log)


@pytest.mark.parametrize("seen_count", [0, 1, 2])
async def test_offline_through_several_lost_tails(seen_count: int) -> None:
    """The Indexer saw a tail that was lost, and missed the next tails.

    Its offset is somewhere in another history.
    """
    machine, follower = Machine(), Follower()
    async with machine.running() as log:
        await write(log, 5, "first")
    for number in range(seen_count):
        await lose_tail(machine, f"seen {number}")
    log = await started(machine)
    await write(log, 9, "lost, and much longer than all that comes later" * 3)
    async with follower.following(machine, log):
        pass
    await lose_power(machine, log)
    for number in range(3):
        await lose_tail(machine, f"missed {number}")
    async with machine.running() as log:
        await write(log, 60, "last")
    await check(follower, machine)


async def test_epochs_that_were_deleted_with_their_segments() -> None:
    """The log no longer knows the epoch that the Indexer knows.

    That epoch then ends where the oldest kept epoch begins.
    """
    machine, follower = Machine(), Follower()
    log = await started(machine)
    await write(log, 9, "lost")
    async with follower.following(machine, log):
        pass
    await lose_power(machine, log)
    async with machine.running() as log:
        await fill(log, 4)
        await log.segments.delete([0, SEGMENT_SIZE], allow_unindexed=True)
        assert log.epochs.number > 1
    await check(follower, machine)


@pytest.mark.parametrize("count", [2, 9, 60], ids=["shorter", "as long", "longer"])
async def test_a_log_restored_from_a_copy(count: int) -> None:
    """A restored log gives the number of an epoch a second time, from another physical offset on.

    Its records begin where the earlier records began.
    """
    machine, restored, follower = Machine(), Machine(), Follower()
    log = await started(machine)
    await write(log, 5, "first", durability=2)
    restored.fs = machine.fs.after_crash(everything_survives)
    await write(log, 4, "later", durability=2)
    await machine.kill(log, everything_survives)
    async with machine.running() as log:
        await write(log, 5, "never", durability=2)
        async with follower.following(machine, log) as indexer:
            assert indexer.indexes.reached.epoch == 2
    async with restored.running() as log:
        assert log.epochs.number == 2
        await write(log, count, "again")
    await check(follower, restored)


@pytest.mark.parametrize("length", [3, 40], ids=["shorter", "longer"])
async def test_an_indexer_of_another_log(length: int) -> None:
    """Once a log with equal epochs is accepted, the indexes keep nothing of the other log.

    The Indexer's offset is below or beyond the log's end.
    """
    mine, other, follower = Machine(), Machine(), Follower()
    async with other.running() as log:
        await write(log, 20, "other")
        async with follower.following(other, log):
            pass
    async with mine.running() as log:
        await write(log, length, "mine")
        async with follower.following(mine, log, is_other=True):
            pass
    await check(follower, mine)


@pytest.mark.parametrize("follows_lost", [False, True])
async def test_a_lost_epoch_file(*, follows_lost: bool) -> None:
    """A log without its epoch file begins with epoch 1 again, and the Indexer recognizes it as another log."""
    machine, follower = Machine(), Follower()
    log = await started(machine)
    await write(log, 4, "kept", durability=2)
    if follows_lost:
        await write(log, 5, "lost, and longer" * 9)
    async with follower.following(machine, log) as indexer:
        assert indexer.indexes.reached.epoch == 1
    await machine.kill(log, nothing_survives)
    async with machine.running() as log:
        await write(log, 50, "later")
    machine.fs.remove(DATA_DIR / store_layout.EPOCHS)
    async with machine.running() as log:
        assert log.epochs.number == 1
        async with follower.following(machine, log, is_other=True):
            pass
    await check(follower, machine)


async def test_a_lost_name_costs_no_index() -> None:
    """A log that lost its history id but kept its epochs is followed further, and no record is indexed twice."""
    machine, follower = Machine(), Follower()
    async with machine.running() as log:
        await write(log, 9, "first")
        async with follower.following(machine, log):
            pass
    machine.fs.remove(DATA_DIR / store_layout.HISTORY)
    async with machine.running() as log:
        await write(log, 2, "second")
        async with follower.following(machine, log) as indexer:
            assert indexer.indexes.applied_record_count == 2
    await check(follower, machine)


@pytest.mark.parametrize("indexer_loses", ["nothing", "progress", "power"])
async def test_a_log_that_lost_its_count_asks_the_indexer(indexer_loses: str) -> None:
    """Without old segments and the snapshot, the log asks the Indexer for the ends of the queues.

    The queues continue from there.
    """
    machine, follower = Machine(), Follower()
    async with machine.running() as log:
        await append(log, *(message(topic="spent") for _ in range(7)))
        await fill(log, 3)
        async with follower.following(machine, log) as indexer:
            await indexer.follow.flush.flush(is_thorough=True)
            await log.segments.delete([0], allow_unindexed=True)
            if indexer_loses == "power":
                await follower.die()
    if indexer_loses == "progress":
        follower.fs.remove(Path("/data/reput/index_progress"))
    machine.fs.remove(DATA_DIR / store_layout.QUEUE_SNAPSHOT)
    async with machine.running() as log:
        assert log.gate.refusals() == ["QUEUE_OFFSETS_UNKNOWN"]
        async with follower.following(machine, log):
            assert log.gate.is_open
            batch = await append(log, message(topic="spent"))
            assert memoryview(batch.queue_offsets).cast("q")[0] == 7


async def test_an_indexer_that_was_not_there_opens_nothing() -> None:
    """A new Indexer knows no more queue ends than the log itself, so appends keep waiting."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, message(topic="spent"))
        await fill(log, 3)
        await log.segments.delete([0], allow_unindexed=True)
    machine.fs.remove(DATA_DIR / store_layout.QUEUE_SNAPSHOT)
    for follower in (Follower(), Follower()):
        async with machine.running() as log, follower.following(machine, log):
            assert not log.gate.is_open


async def test_appends_wait_for_a_real_indexer(tmp_path: Path) -> None:
    """Appends are refused until the Indexer has connected, and then get their queue offsets, over the wire."""
    log_dir, index_dir = tmp_path / "log", tmp_path / "index"
    spent = append_pb.AppendRequest(messages=[message(topic="spent")])
    async with log_served.served(log_dir) as (service, client):
        for _ in range(7):
            await client.append.Append(spent)
        for _ in range(160):
            await client.append.Append(append_pb.AppendRequest(messages=[message(bytes(1_000))]))
        async with index_served.served(index_dir, f"127.0.0.1:{service.server.port}") as (_, indexer):
            await indexer.wait_indexed(service.commit_log.log.marks.visible.value)
            request = segment_pb.DeleteSegmentsRequest(base_physical_offsets=[0], allow_unindexed=True)
            answer = await client.segments.DeleteSegments(request)
            assert answer.outcomes[0].is_deleted
    (log_dir / store_layout.QUEUE_SNAPSHOT).unlink()
    async with log_served.served(log_dir) as (service, client):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.append.Append(spent)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert Refusal(refused.value).reason == "QUEUE_OFFSETS_UNKNOWN"
        async with index_served.served(index_dir, f"127.0.0.1:{service.server.port}"):
            await eventually(lambda: service.commit_log.log.gate.is_open)
        assert list((await client.append.Append(spent)).result.queue_offsets) == [7]
