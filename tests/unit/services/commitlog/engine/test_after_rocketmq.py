# SPDX-License-Identifier: Apache-2.0
"""Starts on stores that Reput wrote and RocketMQ went on with: what tells, and why it must be known."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from libs.formats.store_checkpoint import StoreCheckpoint
from libs.store import checkpoint_file
from tests.support.records import encoded
from tests.unit.services.commitlog.support import DATA_DIR, Machine, append, bodies, message

CHECKPOINT = DATA_DIR / checkpoint_file.FILE_NAME
COUNT = 5


def change_checkpoint(machine: Machine, **times: int) -> None:
    """Write times as RocketMQ does: everything else in the file stays."""
    changed = replace(checkpoint_file.load(machine.fs, CHECKPOINT), **times)
    checkpoint_file.save(machine.fs, CHECKPOINT, changed)


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
    """Store times of RocketMQ follow the clock wherever it steps; only in Reput's own log such a record is stale."""
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
    """After the first sync the checkpoint is Reput's, whatever stood there before."""
    foreign = StoreCheckpoint(commit_log_time_ms=5, flushed_physical_offset=4, flushed_time_ms=3)
    assert foreign.is_of_rocketmq
    assert not foreign.of_reput().is_of_rocketmq
    assert foreign.of_reput().of_rocketmq().is_of_rocketmq
    machine = Machine()
    async with machine.running() as log:
        await append(log)
    change_checkpoint(machine, consume_queue_time_ms=1)
    assert checkpoint_file.load(machine.fs, CHECKPOINT).is_of_rocketmq
    async with machine.running() as log:
        await append(log)
    assert not checkpoint_file.load(machine.fs, CHECKPOINT).is_of_rocketmq
