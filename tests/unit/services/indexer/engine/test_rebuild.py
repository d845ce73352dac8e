# SPDX-License-Identifier: Apache-2.0
"""An offline rebuild: it equals the indexes that the live Indexer made, and a crash in the middle is harmless."""

from pathlib import Path

import pytest

from libs.formats.records.record import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from libs.log.end import ScanEndKind
from libs.machine.errors import StoreLocked
from libs.machine.failpoints import armed
from libs.machine.testing.memory_fs import MemoryFs, Survives, everything_survives, nothing_survives
from libs.requests.errors import RecordDamaged
from services.indexer.engine.offline_rebuild import RebuildProgress
from services.indexer.engine.tables.progress import ProgressFile
from tests.support.fake_log import FakeLog
from tests.support.indexer import (
    COMMIT_LOG,
    DATA_DIR,
    PROGRESS,
    SEGMENT_SIZE_BYTES,
    assert_complete,
    derived,
    feed,
    make_indexer,
    running,
    write_log,
)
from tests.support.patience import eventually
from tests.support.rebuilds import filled, run, stored
from tests.support.records import IPV6_BORN, IPV6_STORE


async def test_it_equals_what_the_live_indexer_built() -> None:
    """Queue files are equal byte for byte, keys by search, and the next start replays nothing."""
    log = filled(120)
    fs = stored(log)
    steps: list[RebuildProgress] = []
    report = await run(fs, on_progress=steps.append)
    assert (report.start_physical_offset, report.end_physical_offset) == (0, log.end_physical_offset)
    assert (report.record_count, report.queue_count, report.epoch) == (120, 3, 1)
    assert report.log_end is ScanEndKind.CLEAN
    assert report.index_file_count > 3
    assert steps[-1] == RebuildProgress(0, log.end_physical_offset, log.end_physical_offset, 120)
    progress = ProgressFile(fs, PROGRESS).load()
    assert progress.is_clean
    log.follow_starts.clear()
    await assert_complete(fs, log)
    assert log.follow_starts == [log.end_physical_offset]


async def test_what_was_there_before_is_dropped() -> None:
    """Damaged indexes of another log are removed completely; consumer offsets stay."""
    other, fs = filled(200), MemoryFs()
    async with running(other, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == other.end_physical_offset)
        indexer.groups.commit("G", {("T", 0): 7})
    fs.remove(DATA_DIR / "consumequeue/T/1/00000000000000000320")
    log = filled(30)
    log.append("T", 5, keys="all")
    await run(stored(log, fs))
    await assert_complete(fs, log)
    async with running(log, fs) as indexer:
        assert indexer.groups.count == 1


async def test_an_empty_log_has_empty_indexes() -> None:
    """A rebuild of an empty log succeeds."""
    fs = MemoryFs()
    fs.make_directory(COMMIT_LOG)
    report = await run(fs)
    assert (report.record_count, report.queue_count, report.index_file_count) == (0, 0, 0)
    assert derived(fs, "consumequeue") == derived(fs, "index") == {}


async def test_an_expired_start() -> None:
    """Without the oldest segments the queues begin at their oldest kept message."""
    log = filled(120)
    log.trim(2 * SEGMENT_SIZE_BYTES)
    report = await run(stored(log))
    kept = [made for made in log.records if made.physical_offset >= 2 * SEGMENT_SIZE_BYTES]
    assert (report.start_physical_offset, report.record_count) == (2 * SEGMENT_SIZE_BYTES, len(kept))


async def test_another_directory_than_the_logs() -> None:
    """The log is only read; the indexes are in the configured directory."""
    log = filled(20)
    fs = MemoryFs()
    write_log(log, fs, Path("/log/commitlog"))
    await run(fs, log_data_dir=Path("/log"))
    assert fs.list(Path("/log")) == ["commitlog"]
    await assert_complete(fs, log)


async def test_a_store_that_rocketmq_wrote() -> None:
    """A store of RocketMQ is rebuilt: no epochs, no whole-record checksums, both versions, IPv6, transactions.

    Properties may lack their last separator.
    """
    log = FakeLog(segment_size_bytes=SEGMENT_SIZE_BYTES)
    variants: list[dict[str, object]] = [
        {},
        {"version": 2, "topic": "T" * 200},
        {"born_host": IPV6_BORN, "store_host": IPV6_STORE, "sys_flag": 0x30},
        {"sys_flag": TRANSACTION_PREPARED},
        {"sys_flag": TRANSACTION_COMMIT},
        {"properties": b"KEYS\x01all k1\x02TAGS\x01B"},
    ]
    for index in range(90):
        log.append(**{"topic": "T", "queue_id": index % 3, "keys": "all", **variants[index % len(variants)]})  # type: ignore[arg-type]
    fs, live = MemoryFs(), MemoryFs()
    write_log(log, fs)
    fs.append(COMMIT_LOG / f"{90 * SEGMENT_SIZE_BYTES:020d}", b"")
    report = await run(fs)
    assert (report.record_count, report.epoch) == (90, 0)
    feed(make_indexer(log, live), log)
    assert derived(fs, "consumequeue") == derived(live, "consumequeue")
    assert list(derived(fs, "index").values()) == list(derived(live, "index").values())


async def test_damage_keeps_what_lies_before_it() -> None:
    """Damage of the log raises an error with the place; the indexes are complete up to there, and marked so."""
    log = filled(60)
    fs = stored(log)
    victim = log.records[33].physical_offset
    base = victim - victim % SEGMENT_SIZE_BYTES
    fs.open_mapped(COMMIT_LOG / f"{base:020d}").buffer[victim - base + 60] ^= 1
    with pytest.raises(RecordDamaged):
        await run(fs)
    progress = ProgressFile(fs, PROGRESS).load()
    assert progress.queue_physical_offset == victim
    await assert_complete(fs, log)


async def test_a_directory_that_is_indexed_is_refused_untouched() -> None:
    """A rebuild of the directory of a running Indexer is refused and changes nothing."""
    log = filled(20)
    fs = stored(log)
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    before = derived(fs, "")
    with pytest.raises(StoreLocked):
        await run(fs)
    assert derived(fs, "") == before


@pytest.mark.parametrize("survives", [nothing_survives, everything_survives], ids=["power cut", "kill"])
async def test_a_crash_is_harmless(survives: Survives) -> None:
    """After a crash at the first sync the next start ends with the same indexes."""
    log = filled(40)
    fs = stored(log)
    disks: list[MemoryFs] = []
    with armed("file.sync", lambda: disks.append(fs.after_crash(survives))):
        await run(fs)
    await assert_complete(disks[0], log)
