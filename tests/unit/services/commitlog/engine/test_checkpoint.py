# SPDX-License-Identifier: Apache-2.0
"""The reports of the Indexer, and the checkpoint file."""

import asyncio
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from libs.formats import store_layout
from libs.formats.state.store_checkpoint import StoreCheckpoint
from libs.log.state import small_files
from libs.machine.fs import Fs
from libs.requests.errors import BadArgument, ServiceError
from services.commitlog.engine.keep.checkpoint import IndexerReport
from services.commitlog.errors import BeyondMaxOffset, StaleEpoch
from tests.support.commitlog import DATA_DIR, Machine, append
from tests.support.patience import LIMIT_S

GOOD = IndexerReport(
    indexed_physical_offset=100,
    flushed_physical_offset=50,
    queue_flushed_time_ms=7,
    index_flushed_time_ms=5,
    epoch=1,
)


async def test_a_report_reaches_the_checkpoint() -> None:
    """The Indexer's times are in the checkpoint at RocketMQ's places."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
        log.followers.report(GOOD)
        assert log.checkpoint.reported_at_ms == machine.clock.now_ms()
    stored = small_files.load_checkpoint(machine.fs, DATA_DIR)
    assert (stored.consume_queue_time_ms, stored.index_time_ms) == (7, 5)


async def test_offsets_never_go_back_and_times_do() -> None:
    """Reported offsets never decrease, but the checkpoint's times do: they are the begin of a recovery."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
        log.followers.report(GOOD)
        log.followers.report(
            replace(GOOD, indexed_physical_offset=10, flushed_physical_offset=9, queue_flushed_time_ms=1)
        )
        assert log.checkpoint.indexed_physical_offset == 100
        assert log.checkpoint.indexed_flushed_physical_offset == 50
        assert log.checkpoint.value.consume_queue_time_ms == 1


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"epoch": 1}, StaleEpoch, "epoch"),
        ({"epoch": 0}, BadArgument, "epoch"),
        ({"epoch": 3}, BadArgument, "epoch"),
        ({"epoch": -1}, BadArgument, "epoch"),
        ({"indexed_physical_offset": -1}, BadArgument, "indexed_physical_offset"),
        ({"indexed_physical_offset": 1 << 40}, BeyondMaxOffset, "indexed_physical_offset"),
        ({"flushed_physical_offset": -1}, BadArgument, "flushed_physical_offset"),
        ({"flushed_physical_offset": 101}, BadArgument, "flushed_physical_offset"),
        ({"queue_flushed_time_ms": -1}, BadArgument, "queue_flushed_time_ms"),
        ({"index_flushed_time_ms": -1}, BadArgument, "index_flushed_time_ms"),
    ],
)
async def test_bad_reports(changes: dict[str, int], error: type[ServiceError], field: str) -> None:
    """A report from another history or with impossible numbers is refused by field and changes nothing."""
    machine = Machine()
    log = await machine.start()
    await append(log)
    await machine.kill(log)
    async with machine.running() as log:
        with pytest.raises(error) as caught:
            log.followers.report(replace(GOOD, **{"epoch": 2, **changes}))
        assert caught.value.field == field  # type: ignore[attr-defined]
        assert log.checkpoint.reported_at_ms is None


async def test_the_checkpoint_is_written_only_when_it_changed() -> None:
    """A store without changes does not write its checkpoint."""
    machine = Machine(checkpoint_interval_ms=1)
    async with machine.running() as log:
        await append(log, durability=2)
        await log.checkpoint.save()
        path = DATA_DIR / store_layout.CHECKPOINT
        machine.fs.remove(path)
        await log.checkpoint.save()
        assert not machine.fs.exists(path)


async def test_a_write_that_nobody_waits_for_any_more_does_not_have_the_last_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the loop ends while its thread writes the checkpoint, the value is the value before that write again."""
    machine = Machine(checkpoint_interval_ms=3_600_000)
    may_write, save_checkpoint = threading.Event(), small_files.save_checkpoint

    def held_up(fs: Fs, data_dir: Path, checkpoint: StoreCheckpoint) -> None:
        assert may_write.wait(LIMIT_S)
        save_checkpoint(fs, data_dir, checkpoint)

    async with machine.running() as log:
        await append(log, durability=2)
        await log.checkpoint.save()
        before = log.checkpoint.value
        monkeypatch.setattr(small_files, "save_checkpoint", held_up)
        log.checkpoint.value = replace(before, index_time_ms=before.index_time_ms + 7)
        saving = asyncio.create_task(log.checkpoint.save())
        await asyncio.sleep(0.05)
        saving.cancel()
        await asyncio.wait([saving])
        log.checkpoint.value = before
        again = asyncio.create_task(log.checkpoint.save())
        await asyncio.sleep(0.05)
        assert not again.done()
        may_write.set()
        await again
        assert small_files.load_checkpoint(machine.fs, DATA_DIR).index_time_ms == before.index_time_ms
