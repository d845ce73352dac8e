# SPDX-License-Identifier: Apache-2.0
"""DelayOffsets: RocketMQ's file of the delay levels has the offsets that Delivery commits, and counts at a start."""

import asyncio
import itertools
from pathlib import Path

import pytest

from libs.formats.config import consumer_offsets_json, delay_offsets_json
from libs.formats.config.config_json import DataVersion
from libs.formats.config.delay_offsets_json import DelayOffsetsFile
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.system_topics import LEVELS_GROUP
from libs.log.errors import ConfigFileDamaged
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets
from services.indexer.engine.groups.delay_offsets import DelayOffsets
from services.indexer.engine.tables.queues import ConsumeQueueTable

PATH = Path("/data/config/delayOffset.json")
GROUPS_PATH = PATH.with_name("consumerOffset.json")


class Files:
    """The offsets of groups and of levels in a directory."""

    def __init__(self, fs: MemoryFs, clock: ManualClock | None = None) -> None:
        clock = clock or ManualClock()
        self.groups = ConsumerOffsets(fs, GROUPS_PATH, clock, count_max=10_000)
        self.levels = DelayOffsets(fs, PATH, self.groups, clock)

    def load(self) -> None:
        """Read both files, as a start does."""
        self.groups.load()
        self.levels.load()

    def commit(self, offsets: dict[int, int]) -> None:
        """Commit offsets by queue id, as Delivery does."""
        found = {(SCHEDULE_TOPIC, queue_id): queue_offset for queue_id, queue_offset in offsets.items()}
        self.groups.commit(LEVELS_GROUP, found)

    @property
    def known(self) -> dict[int, int]:
        """The offsets that Delivery would get."""
        return self.groups.of_topic(LEVELS_GROUP, SCHEDULE_TOPIC)


def written(fs: MemoryFs) -> DelayOffsetsFile:
    """The content of the file."""
    return delay_offsets_json.loads(fs.read(PATH).decode())


def test_a_damaged_file_gives_way_to_its_copy() -> None:
    """RocketMQ's copy replaces a damaged file.

    Without a copy the start fails, as all messages would be delivered again.
    """
    fs = MemoryFs()
    fs.make_directory(PATH.parent)
    fs.write_atomic(PATH, b"{")
    files = Files(fs)
    with pytest.raises(ConfigFileDamaged, match=str(PATH)):
        files.load()
    backup = delay_offsets_json.dumps(DelayOffsetsFile({2: 7}, DataVersion(1, 2, 3)))
    fs.write_atomic(PATH.with_name(PATH.name + ".bak"), backup.encode())
    files.load()
    assert files.known == {1: 7}


async def test_only_what_changed_is_written() -> None:
    """A save without a change leaves the file alone; each other save increases the version."""
    fs, clock = MemoryFs(), ManualClock()
    files = Files(fs, clock)
    await files.levels.save()
    assert not fs.exists(PATH)
    for count in (1, 2):
        files.commit({4: count})
        await files.levels.save()
        await files.levels.save()
        assert written(fs) == DelayOffsetsFile({5: count}, DataVersion(count, clock.now_ms()))


async def test_it_is_never_older_than_the_file_of_the_groups() -> None:
    """At a start the older of both would count, and Delivery would deliver messages of a level again."""
    fs = MemoryFs()
    files = Files(fs)
    is_over = False

    async def commit() -> None:
        for count in itertools.count(1):
            files.commit({0: count})
            await asyncio.sleep(0)
            if is_over:
                return

    committing = asyncio.create_task(commit())
    for _ in range(20):
        await asyncio.sleep(0)
        await files.groups.save()
        found = consumer_offsets_json.loads(fs.read(GROUPS_PATH).decode()).offsets
        assert found[SCHEDULE_TOPIC, LEVELS_GROUP][0] <= written(fs).offsets[1]
    is_over = True
    await committing


@pytest.mark.parametrize(
    "text",
    ['{"offsetTable":{1:2,3:0}}', '{"dataVersion":{"counter":9,"stateVersion":4,"timestamp":5},"offsetTable":{"1":2}}'],
)
async def test_a_file_of_rocketmq_counts(text: str) -> None:
    """Its offsets replace the committed offsets: RocketMQ had the store since. Its version is continued."""
    fs = MemoryFs()
    before = Files(fs)
    before.commit({0: 1, 1: 9})
    await before.groups.save()
    fs.write_atomic(PATH, text.encode())
    files = Files(fs)
    files.load()
    assert files.known.items() >= {0: 2, 1: 9}.items()
    files.commit({0: 3})
    await files.levels.save()
    version = written(fs).data_version
    assert version is not None
    assert (version.counter, version.state_version) == ((1, 0) if "counter" not in text else (10, 4))


async def test_any_level_that_a_store_has() -> None:
    """Every written level is read again, because RocketMQ has no limit for the number of levels."""
    fs = MemoryFs()
    files = Files(fs)
    files.commit({1_000: 7})
    await files.levels.save()
    again = Files(fs)
    again.load()
    assert again.known == {1_000: 7}


def test_offsets_of_a_log_that_lost_records() -> None:
    """No offset is past the end of its queue: the next messages get the offsets of the lost messages."""
    fs = MemoryFs()
    queues = ConsumeQueueTable(fs, Path("/data/consumequeue"), file_size_bytes=20, mapped_file_count_max=1)
    files = Files(fs)
    files.commit({0: 5, 1: 0})
    files.levels.limit(queues)
    assert files.known == {0: 0, 1: 0}
