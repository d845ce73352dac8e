# SPDX-License-Identifier: Apache-2.0
"""DelayOffsets: the messages that count as delivered, and the file with their offsets."""

from pathlib import Path

import pytest

from libs.formats.config import delay_offsets_json
from libs.formats.config.config_json import DataVersion
from libs.formats.config.delay_offsets_json import DelayOffsetsFile
from libs.log.errors import ConfigFileDamaged
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.share.delay_offsets import DelayOffsets
from services.indexer.engine.tables.queues import ConsumeQueueTable

PATH = Path("/data/config/delayOffset.json")


def made(fs: MemoryFs, clock: ManualClock | None = None) -> DelayOffsets:
    queues = ConsumeQueueTable(fs, Path("/data/consumequeue"), file_size_bytes=20, mapped_file_count_max=1)
    return DelayOffsets(fs, PATH, queues, clock or ManualClock())


def test_a_damaged_file_gives_way_to_its_copy() -> None:
    """RocketMQ's copy replaces a damaged file.

    Without a copy the start fails, as all messages would be delivered again.
    """
    fs = MemoryFs()
    fs.make_directory(PATH.parent)
    fs.write_atomic(PATH, b"{")
    offsets = made(fs)
    with pytest.raises(ConfigFileDamaged, match=str(PATH)):
        offsets.load()
    backup = delay_offsets_json.dumps(DelayOffsetsFile({2: 7}, DataVersion(1, 2, 3)))
    fs.write_atomic(PATH.with_name(PATH.name + ".bak"), backup.encode())
    offsets.load()
    assert (offsets.next_of(1), offsets.next_of(0)) == (7, 0)


def test_what_an_answer_from_the_disk_covers() -> None:
    """An answer from the disk covers the batches of any level that end before it in the log, and no others."""
    offsets = made(MemoryFs())
    offsets.delivered(0, 5, end_physical_offset=100, is_on_disk=False)
    offsets.delivered(1, 7, end_physical_offset=40, is_on_disk=False)
    offsets.delivered(2, 9, end_physical_offset=50, is_on_disk=True)
    offsets.step_over(0, 6)
    assert [offsets.next_of(queue_id) for queue_id in range(4)] == [6, 7, 9, 0]
    offsets.change_history(False)
    assert [offsets.next_of(queue_id) for queue_id in range(4)] == [0, 7, 9, 0]


async def test_only_what_changed_is_written() -> None:
    """A save without a change leaves the file alone; each other save increases the version."""
    fs, clock = MemoryFs(), ManualClock()
    offsets = made(fs, clock)
    await offsets.save()
    assert not fs.exists(PATH)
    for count in (1, 2):
        offsets.move(4, count)
        await offsets.save()
        await offsets.save()
        file = delay_offsets_json.loads(fs.read(PATH).decode())
        assert file == DelayOffsetsFile({5: count}, DataVersion(count, clock.now_ms()))


async def test_any_level_that_a_store_has() -> None:
    """Every written level is read again, because RocketMQ has no limit for the number of levels."""
    fs = MemoryFs()
    offsets = made(fs)
    offsets.move(1_000, 7)
    await offsets.save()
    again = made(fs)
    again.load()
    assert again.next_of(1_000) == 7
