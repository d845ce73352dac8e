# SPDX-License-Identifier: Apache-2.0
"""ConsumerOffsets: kept in RocketMQ's file, bounded, never half written."""

import asyncio
import gc
import threading
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from libs.formats.config import consumer_offsets_json
from libs.log.errors import ConfigFileDamaged
from libs.machine.failpoints import FailpointRaised
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs, nothing_survives
from libs.requests.errors import WindowFull
from services.indexer.engine.groups import consumer_offsets
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets, GroupOffset
from tests.support.patience import LIMIT_S

PATH = Path("/data/config/consumerOffset.json")
BACKUP = Path("/data/config/consumerOffset.json.bak")


def load(fs: MemoryFs, *, count_max: int = 100) -> ConsumerOffsets:
    offsets = ConsumerOffsets(fs, PATH, ManualClock(), count_max=count_max)
    offsets.load()
    return offsets


async def groups_of(offsets: ConsumerOffsets) -> list[str]:
    return sorted([name async for names in offsets.group_names() for name in names])


async def offsets_of(offsets: ConsumerOffsets, group: str) -> list[GroupOffset]:
    return sorted([one async for step in offsets.offsets(group) for one in step])


async def test_offsets_come_back_after_a_crash() -> None:
    """Saved offsets are durable, in RocketMQ's shape, with integer keys and a data version that counts up."""
    fs = MemoryFs()
    offsets = load(fs)
    offsets.commit("g", {("T", 0): 5, ("T", 10): 7})
    offsets.commit("%RETRY%g", {("U", 0): 1})
    await offsets.save()
    fs.crash(nothing_survives)
    assert b'"T@g":{0:5,10:7}' in fs.read(PATH).replace(b"\n", b"").replace(b"\t", b"")
    again = load(fs)
    assert await groups_of(again) == ["%RETRY%g", "g"]
    assert await offsets_of(again, "g") == [("g", "T", 0, 5), ("g", "T", 10, 7)]
    assert (again.find("g", "T", 10), again.find("g", "T", 1), again.find("h", "T", 0)) == (7, None, None)
    again.commit("g", {("T", 0): 3})
    await again.save()
    version = consumer_offsets_json.loads(fs.read(PATH).decode()).data_version
    assert version is not None
    assert version.counter == 2
    assert load(fs).find("g", "T", 0) == 3


async def test_a_group_is_forgotten() -> None:
    """Deletion removes a group or a topic of a group; other offsets stay, their room is free, and the file has it."""
    fs = MemoryFs()
    offsets = load(fs, count_max=5)
    offsets.commit("g", {("T", 0): 5, ("T", 1): 7, ("U", 0): 1})
    offsets.commit("h", {("T", 0): 2, ("T", 1): 3})
    await offsets.save()
    with pytest.raises(WindowFull):
        offsets.commit("i", {("T", 0): 1})
    assert await offsets.delete("g", "T") == 2
    assert await offsets_of(offsets, "g") == [("g", "U", 0, 1)]
    assert (await offsets.delete("g", "T"), await offsets.delete("none")) == (0, 0)
    assert await offsets.delete("h") == 2
    assert (await groups_of(offsets), offsets.count) == (["g"], 1)
    await offsets.save()
    fs.crash(nothing_survives)
    again = load(fs, count_max=5)
    assert await groups_of(again) == ["g"]
    assert await offsets_of(again, "g") == [("g", "U", 0, 1)]
    again.commit("i", {("T", queue_id): 1 for queue_id in range(4)})
    assert again.count == 5


async def test_deleted_groups_give_back_the_bytes_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted groups free the bytes of the file's bound, in any number of creations and deletions."""
    monkeypatch.setattr(consumer_offsets, "FILE_SIZE_BYTES_MAX", 1_000)
    offsets = load(MemoryFs(), count_max=1_000)
    for number in range(100):
        offsets.commit(f"group-{number}", {("T", queue_id): 1 for queue_id in range(5)})
        assert await offsets.delete(f"group-{number}") == 5


def expiring(fs: MemoryFs, clock: ManualClock) -> ConsumerOffsets:
    offsets = ConsumerOffsets(fs, PATH, clock, count_max=100, expire_s=3600)
    offsets.load()
    return offsets


async def test_groups_that_nobody_uses_expire(caplog: pytest.LogCaptureFixture) -> None:
    """A commit, also of the same offset, and a read keep a group; the time counts from the start at the earliest."""
    fs, clock = MemoryFs(), ManualClock()
    begun = expiring(fs, clock)
    for group in ("committed", "asked", "forgotten"):
        begun.commit(group, {("T", 0): 5})
    await begun.save()
    clock.advance(10 * 3_600_000)
    offsets = expiring(fs, clock)
    await offsets.run_maintenance()
    assert await groups_of(offsets) == ["asked", "committed", "forgotten"], "it has just begun"
    clock.advance(1_800_000)
    offsets.commit("committed", {("T", 0): 5})
    assert offsets.find("asked", "T", 0) == 5
    assert offsets.find("forgotten", "T", 9) is None, "a question for nothing keeps nothing"
    clock.advance(1_800_000)
    with caplog.at_level("INFO"):
        await offsets.run_maintenance()
    assert await groups_of(offsets) == ["asked", "committed"]
    assert "forgotten: forgotten" in caplog.text
    fs.crash(nothing_survives)
    assert await groups_of(expiring(fs, clock)) == ["asked", "committed"]
    clock.advance(3_600_000)
    await offsets.run_maintenance()
    assert offsets.count == 0


async def test_a_jump_of_the_clock_forgets_no_group() -> None:
    """A jump of the clock expires no group, because only elapsed time counts."""
    clock = ManualClock()
    offsets = expiring(MemoryFs(), clock)
    offsets.commit("g", {("T", 0): 5})
    clock.set_now_ms(clock.now_ms() + 10**12)
    clock.advance(120_000)
    await offsets.run_maintenance()
    assert await groups_of(offsets) == ["g"]


async def test_by_default_no_group_expires() -> None:
    """By default an unused group never expires."""
    clock = ManualClock()
    offsets = ConsumerOffsets(MemoryFs(), PATH, clock, count_max=100)
    offsets.commit("g", {("T", 0): 5})
    clock.advance(10**12)
    await offsets.run_maintenance()
    assert await groups_of(offsets) == ["g"]


async def test_nothing_is_written_without_a_change() -> None:
    """A commit of the same offsets does not write the file."""
    fs = MemoryFs()
    offsets = load(fs)
    await offsets.save()
    assert not fs.exists(PATH)
    offsets.commit("g", {("T", 0): 5})
    await offsets.save()
    before = fs.read(PATH)
    offsets.commit("g", {("T", 0): 5})
    await offsets.save()
    assert fs.read(PATH) == before


@pytest.mark.parametrize("damage", [None, b"", b"{", b'{"offsetTable":{"T":{0:1}}}', b"\xff"])
async def test_a_damaged_file_gives_way_to_its_copy(damage: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    """If the main file is missing or damaged, its copy is read, the log says so, and the next save repairs both."""
    fs = MemoryFs()
    offsets = load(fs)
    for value in (5, 6):
        offsets.commit("g", {("T", 0): value})
        await offsets.save()
    fs.remove(PATH) if damage is None else fs.write_atomic(PATH, damage)
    offsets = load(fs)
    assert offsets.find("g", "T", 0) == 6
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert f"{PATH} can't be read, its copy is taken: " in record.getMessage()
    offsets.commit("g", {("T", 0): 9})
    await offsets.save()
    assert load(fs).find("g", "T", 0) == 9
    assert consumer_offsets_json.loads(fs.read(BACKUP).decode()).offsets == {("T", "g"): {0: 9}}
    assert len(caplog.records) == 1


def test_two_damaged_files_stop_the_start() -> None:
    """Offsets can't be derived from other data, so a start without a good file fails."""
    fs = MemoryFs()
    fs.make_directory(PATH.parent)
    fs.write_atomic(PATH, b"\xff")
    with pytest.raises(ConfigFileDamaged, match=str(PATH)):
        load(fs)
    fs.write_atomic(BACKUP, b"[]")
    with pytest.raises(ConfigFileDamaged, match=str(PATH)):
        load(fs)


async def test_the_number_of_offsets_is_bounded() -> None:
    """A commit that would exceed the bound is refused as a whole; known queues may always move."""
    offsets = load(MemoryFs(), count_max=3)
    offsets.commit("g", {("T", 0): 1, ("T", 1): 1})
    with pytest.raises(WindowFull):
        offsets.commit("h", {("T", 0): 1, ("T", 1): 1})
    assert await groups_of(offsets) == ["g"]
    offsets.commit("h", {("T", 0): 1})
    offsets.commit("g", {("T", 0): 2})
    assert offsets.count == 3


async def test_the_bytes_of_the_file_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With names of any length a start can read the file, and the estimate of its size is never too small."""
    fs = MemoryFs()
    monkeypatch.setattr(consumer_offsets, "FILE_SIZE_BYTES_MAX", 20_000)
    offsets = load(fs, count_max=10**6)
    topic = "t" * 255

    def fill() -> None:
        for index in range(10**6):
            offsets.commit(f"{index:0255}", {(topic, 2**31 - 1): 2**63 - 1})

    with pytest.raises(WindowFull, match="bytes"):
        fill()
    await offsets.save()
    assert 0.9 * 20_000 < len(fs.read(PATH)) < 20_000 + 100
    again = load(fs, count_max=10**6)
    assert again.count == offsets.count
    with pytest.raises(WindowFull, match="bytes"):
        again.commit("h" * 255, {(topic, 0): 0})


async def test_a_save_makes_anew_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit to one of thousands of groups encodes only the entries of its shard in the next save."""
    offsets = load(MemoryFs(), count_max=10**6)
    group_count = 4_096
    made: list[str] = []
    encode = consumer_offsets_json.encode_entry

    def counted(topic: str, group: str, parts: Sequence[bytes]) -> bytes:
        made.append(group)
        return encode(topic, group, parts)

    monkeypatch.setattr(consumer_offsets_json, "encode_entry", counted)
    for index in range(group_count):
        offsets.commit(f"g{index}", {("T", 0): index})
    await offsets.save()
    assert len(made) == group_count
    made.clear()
    offsets.commit("g7", {("T", 0): 0})
    await offsets.save()
    assert "g7" in made
    assert len(made) < 20 * group_count / consumer_offsets.SHARD_COUNT


async def test_what_is_committed_during_a_save_is_in_the_next_one() -> None:
    """A commit during a save is in the next save, also if the group's entry is being encoded."""
    fs = MemoryFs()
    offsets = load(fs, count_max=10**6)
    offsets.commit("g", {("T", queue_id): 1 for queue_id in range(5_000)})
    saving = asyncio.create_task(offsets.save())
    for _ in range(4):
        await asyncio.sleep(0)
    offsets.commit("g", {("T", 0): 2, ("T", 4_999): 2, ("T", 6_000): 2})
    await saving
    assert load(fs).find("g", "T", 1) == 1
    await offsets.save()
    assert [load(fs).find("g", "T", queue_id) for queue_id in (0, 1, 4_999, 6_000)] == [2, 1, 2, 2]


async def test_a_failed_save_is_tried_again() -> None:
    """After a failed save the offsets still count as changed, and the next save writes them."""
    fs = MemoryFs()
    offsets = load(fs)
    offsets.commit("g", {("T", 0): 5})
    write = fs.write_atomic

    def fail(path: Path, data: bytes) -> None:
        raise FailpointRaised("test")

    fs.write_atomic = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="failpoint"):
        await offsets.save()
    fs.write_atomic = write  # type: ignore[method-assign]
    await offsets.save()
    assert load(fs).find("g", "T", 0) == 5


class SlowFs(MemoryFs):
    """Its writes wait until they may go on, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.write_count = 0
        self.entered, self.go_on = threading.Event(), threading.Event()

    def write_atomic(self, path: Path, data: bytes) -> None:
        """Write as MemoryFs does, when it is allowed to."""
        self.write_count += 1
        self.entered.set()
        assert self.go_on.wait(LIMIT_S)
        super().write_atomic(path, data)


async def test_a_caller_who_goes_away_leaves_no_two_writers() -> None:
    """A save whose caller is cancelled continues; the next save waits for it."""
    fs = SlowFs()
    offsets = load(fs)
    offsets.commit("g", {("T", 0): 1})
    first = asyncio.create_task(offsets.save())
    assert await asyncio.to_thread(fs.entered.wait, LIMIT_S)
    first.cancel()
    await asyncio.wait([first])
    offsets.commit("g", {("T", 0): 2})
    second = asyncio.create_task(offsets.save())
    await asyncio.sleep(0.05)
    assert fs.write_count == 1
    fs.go_on.set()
    await second
    assert load(fs).find("g", "T", 0) == 2


def test_an_offset_is_small_in_memory() -> None:
    """A million offsets are small: groups share the text of a queue, and the collector tracks no offset."""
    offsets = load(MemoryFs(), count_max=100_000)
    queues = [(f"topic-{number}", 1) for number in range(1_000)]
    offsets.commit("first", dict.fromkeys(queues, 1 << 40))
    tracemalloc.start()
    try:
        for number in range(20):
            offsets.commit(f"group-{number}", {(topic, 1): (1 << 40) + number for topic, _ in queues})
        size_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert size_bytes / 20_000 < 80
    assert not any(gc.is_tracked(group) for shard in offsets._shards.values() for group in shard.groups.values())
