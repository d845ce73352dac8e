# SPDX-License-Identifier: Apache-2.0
"""Starts on stores that Reput wrote and that RocketMQ then used: how a start recognises this, and why it has to."""

import os
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from libs.formats import store_layout
from libs.formats.state import abort_file
from libs.formats.state.store_checkpoint import StoreCheckpoint
from libs.log.state import small_files
from services.commitlog.engine.keep.checkpoint import IndexerReport
from services.commitlog.engine.open_log import OpenLog
from tests.support.commitlog import DATA_DIR, Machine, append, bodies, message
from tests.support.records import encoded
from tests.support.replication import Wire

ABORT = DATA_DIR / store_layout.ABORT
COUNT = 5


def change_checkpoint(machine: Machine, **times: int) -> None:
    """Write times as RocketMQ does: everything else in the file stays."""
    changed = replace(small_files.load_checkpoint(machine.fs, DATA_DIR), **times)
    small_files.save_checkpoint(machine.fs, DATA_DIR, changed)


SIGNS: dict[str, Callable[[Machine], None]] = {
    "log time": lambda machine: change_checkpoint(machine, commit_log_time_ms=1),
    "queue time, as 4.9 leaves it": lambda machine: change_checkpoint(machine, consume_queue_time_ms=1),
    "index time": lambda machine: change_checkpoint(machine, index_time_ms=1),
    "abort of 4.9": lambda machine: machine.fs.append(DATA_DIR / "abort", b""),
    "abort of 5.x": lambda machine: machine.fs.append(DATA_DIR / "abort", b"4711"),
    "none": lambda machine: machine.fs.append(DATA_DIR / "abort", b"4711\n"),
}


@pytest.mark.parametrize("sign", SIGNS)
async def test_records_of_rocketmq_are_no_leftovers(sign: str) -> None:
    """A record older than its predecessor counts if RocketMQ wrote it; in Reput's own log it is stale.

    Store times of RocketMQ follow the clock, even if it steps back.
    """
    machine = Machine()
    async with machine.running() as log:
        for index in range(COUNT):
            await append(log, message(b"%d" % index))
        end = log.chain.max_physical_offset
    data = machine.segment_bytes()
    data[end : end + 200] = encoded(end, store_time_ms=machine.clock.now_ms() - 60_000).ljust(200, b"\0")
    SIGNS[sign](machine)
    async with machine.running() as log:
        assert len(bodies(log)) == COUNT + (sign != "none")


async def test_reput_goes_by_its_own_word_again() -> None:
    """After the first sync the checkpoint is Reput's, even if RocketMQ wrote it before."""
    foreign = StoreCheckpoint(commit_log_time_ms=5, flushed_physical_offset=4, flushed_time_ms=3)
    assert foreign.is_of_rocketmq
    assert not foreign.of_reput().is_of_rocketmq
    assert foreign.of_reput().of_rocketmq().is_of_rocketmq
    machine = Machine()
    async with machine.running() as log:
        await append(log)
    change_checkpoint(machine, consume_queue_time_ms=1)
    assert small_files.load_checkpoint(machine.fs, DATA_DIR).is_of_rocketmq
    async with machine.running() as log:
        await append(log)
    assert not small_files.load_checkpoint(machine.fs, DATA_DIR).is_of_rocketmq


def report(log: OpenLog, time_ms: int) -> None:
    """Report that all records up to this time are indexed."""
    end = log.chain.max_physical_offset
    log.checkpoint.report(
        IndexerReport(end, end, queue_flushed_time_ms=time_ms, index_flushed_time_ms=time_ms, epoch=1)
    )


def rocketmq_killed(machine: Machine, *directories: str) -> None:
    """Leave the files of a killed RocketMQ: its `abort` file, and an old checkpoint."""
    for directory in directories:
        machine.fs.make_directory(DATA_DIR / directory)
    small_files.save_checkpoint(machine.fs, DATA_DIR, StoreCheckpoint(commit_log_time_ms=7, consume_queue_time_ms=5))
    machine.fs.write_atomic(ABORT, b"4711")


async def test_queues_that_only_rocketmq_recovers() -> None:
    """For queues that only RocketMQ recovers, `abort` and the queue time stay after every stop.

    After the kill of RocketMQ these queues may lack their last units.
    """
    machine = Machine()
    machine.fs.make_directory(DATA_DIR)
    rocketmq_killed(machine, "consumequeue/%LMQ%a/0")
    async with machine.running() as log:
        await append(log, message())
        report(log, time_ms=9)
        assert machine.fs.read(ABORT) == f"{os.getpid()} owed\n".encode()
    assert machine.fs.read(ABORT) == b"owed\n"
    assert small_files.load_checkpoint(machine.fs, DATA_DIR).consume_queue_time_ms == 5
    log = await machine.start()
    assert log.recovery.was_clean_stop
    report(log, time_ms=9)
    await machine.kill(log)
    log = await machine.start()
    assert not log.recovery.was_clean_stop
    report(log, time_ms=9)
    await machine.stop(log)
    assert machine.fs.read(ABORT) == b"owed\n"
    assert small_files.load_checkpoint(machine.fs, DATA_DIR).consume_queue_time_ms == 5
    machine.fs.remove(ABORT)  # RocketMQ has recovered and was stopped in order
    async with machine.running() as log:
        report(log, time_ms=9)
    assert not machine.fs.exists(ABORT)
    assert small_files.load_checkpoint(machine.fs, DATA_DIR).consume_queue_time_ms == 9


async def test_rocketmq_recovers_a_log_whose_queues_are_behind() -> None:
    """`abort` stays over a clean stop while queues lack records, and goes with the next stop of a level Indexer.

    RocketMQ 5.3 leaves out a record if it finds such queues after a clean stop.
    """
    machine = Machine()
    async with machine.running() as log:
        await append(log, message())
    assert not machine.fs.exists(ABORT)  # without queues RocketMQ builds them all
    async with machine.running() as log:
        report(log, time_ms=9)
        await append(log, message())
    assert machine.fs.read(ABORT) == b"behind\n"
    async with machine.running() as log:
        assert log.recovery.was_clean_stop
    assert machine.fs.read(ABORT) == b"behind\n"
    async with machine.running() as log:
        report(log, time_ms=9)
    assert not machine.fs.exists(ABORT)


async def test_what_rocketmq_is_owed_outlives_following() -> None:
    """A copy of another log, and this copy as a leader, keep `abort` and the queue time.

    The queues that RocketMQ has to recover are unchanged.
    """
    machine = Machine()
    machine.fs.make_directory(DATA_DIR)
    rocketmq_killed(machine, "consumequeue/%LMQ%a/0")
    for _ in range(2):
        async with machine.running(leader=Wire().at(), role="slave") as log:
            report(log, time_ms=9)
        abort = abort_file.decode(machine.fs.read(ABORT))
        assert (abort.process_id, abort.is_owed, abort.follows) == (os.getpid(), True, True)
    assert small_files.load_checkpoint(machine.fs, DATA_DIR).consume_queue_time_ms == 5
    async with machine.running() as log:
        report(log, time_ms=9)
    assert machine.fs.read(ABORT) == b"owed\n"
    assert small_files.load_checkpoint(machine.fs, DATA_DIR).consume_queue_time_ms == 5


async def test_nothing_is_owed_without_such_queues() -> None:
    """A start and a stop repair Reput's own queues and leave no `abort` file."""
    machine = Machine()
    machine.fs.make_directory(DATA_DIR)
    rocketmq_killed(machine, "consumequeue/plain/0")
    async with machine.running() as log:
        report(log, time_ms=9)
    assert not machine.fs.exists(ABORT)
