# SPDX-License-Identifier: Apache-2.0
"""TopicStore: a change that was answered survives, whatever fails, and none costs more among more topics."""

import asyncio
import threading
from pathlib import Path

import pytest

from libs.formats.config import topics_json
from libs.formats.config.config_json import DataVersion
from libs.formats.config.topics_json import TopicConfig, TopicsFile
from libs.formats.errors import NewerVersion
from libs.formats.state import checksummed, topic_journal
from libs.log.errors import ConfigFileDamaged
from libs.log.state import topic_store, topics_file
from libs.machine.failpoints import armed
from libs.machine.fs import Fs
from libs.machine.testing.faulty_fs import Fault, FaultyFs, no_faults
from libs.machine.testing.memory_fs import MemoryFs, everything_survives
from tests.support.patience import LIMIT_S
from tests.support.topic_stores import JOURNAL, TOPICS, new_disk, opened, put, queues_of, remove


@pytest.mark.parametrize(
    "place",
    [
        "append.before_sync",
        "write_atomic.before_sync",
        "write_atomic.before_rename",
        "write_atomic.after_rename",
        "topics.before_journal_removal",
        "topics.after_journal_removal",
    ],
)
@pytest.mark.parametrize("ordinal", [1, 2, 3])
async def test_a_death_at_any_step_loses_nothing(place: str, ordinal: int) -> None:
    """A process that dies at any step of a change or a save, by a kill or a power cut, leaves each answered change."""
    fs = new_disk()
    store, left = opened(fs), [ordinal]
    answered: set[str] = set()
    found: list[tuple[set[str], MemoryFs]] = []

    def die() -> None:
        left[0] -= 1
        if left[0] == 0:
            found.extend((set(answered), disk) for disk in (fs.after_crash(), fs.after_crash(everything_survives)))

    with armed(place, die):
        for name in "abcd":
            await put(store, name)
            answered.add(name)
            await asyncio.gather(store.save(), put(store, name * 2))
            answered.add(name * 2)
            await store.save()
    assert len(found) == 2
    for least, disk in found:
        assert least <= set(opened(disk).topics) <= answered


async def test_a_change_during_a_save_stays_in_the_journal() -> None:
    """A change that comes while topics.json is written does not wait for it, and is taken over by the next save."""
    fs = new_disk()
    store = opened(fs)
    await put(store, "a")
    is_writing, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        is_writing.set()
        assert go_on.wait(LIMIT_S)

    real_save = topics_file.save

    def slow_save(*arguments: object) -> None:
        slow()
        real_save(*arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topics_file, "save", slow_save)
        saving = asyncio.create_task(store.save())
        await asyncio.to_thread(is_writing.wait)
        await put(store, "b")
        go_on.set()
        await saving
    assert list(topics_json.loads(fs.read(TOPICS).decode()).topics) == ["a"]
    assert [list(change.put) for change in topic_journal.decode(fs.read(JOURNAL)).changes] == [["b"]]
    fs.crash()
    again = opened(fs)
    assert set(again.topics) == {"a", "b"}
    await again.save()
    assert set(topics_json.loads(fs.read(TOPICS).decode()).topics) == {"a", "b"}
    assert not fs.exists(JOURNAL)


async def test_a_cancelled_save_is_finished() -> None:
    """A save whose caller is cancelled goes on, and the next save or stop waits for it."""
    fs = new_disk()
    store = opened(fs)
    await put(store, "a")
    is_writing, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        is_writing.set()
        assert go_on.wait(LIMIT_S)

    with armed("topics.before_journal_removal", slow):
        saving = asyncio.create_task(store.save())
        await asyncio.to_thread(is_writing.wait)
        saving.cancel()
        await asyncio.wait([saving])
        finishing = asyncio.create_task(store.finish())
        await asyncio.wait([finishing], timeout=0.05)
        assert not finishing.done()
        go_on.set()
        await finishing
    assert not fs.exists(JOURNAL)


async def test_nothing_follows_a_part_of_a_change() -> None:
    """After an append that failed half-way the journal is replaced with the next change, so that it has no damage."""
    disk = new_disk()
    fs = FaultyFs(disk)
    store = opened(fs)
    await put(store, "a")
    fs.plan = lambda operation, _path: Fault(28, 0.5) if operation == "append" else None
    with pytest.raises(OSError, match="no room"):
        await put(store, "b")
    torn = disk.read(JOURNAL)
    assert topic_journal.decode(torn).end < len(torn)
    assert list(opened(disk).topics) == ["a"]
    fs.is_full, fs.plan = True, no_faults
    with pytest.raises(OSError, match="no room"):
        await put(store, "b")
    assert disk.read(JOURNAL) == torn
    fs.is_full = False
    await put(store, "c")
    assert [list(change.put) for change in topic_journal.decode(disk.read(JOURNAL)).changes] == [["a"], ["c"]]


async def test_a_start_behind_a_torn_tail_repairs_it_with_the_next_change(caplog: pytest.LogCaptureFixture) -> None:
    """A start logs the bytes that it leaves out and writes nothing; the next change replaces the journal."""
    fs = new_disk()
    await put(opened(fs), "a")
    fs.append(JOURNAL, b"RPUT\0")
    store = opened(fs)
    assert "5 bytes of a change that was not finished" in caplog.text
    assert fs.read(JOURNAL).endswith(b"RPUT\0")
    await put(store, "b")
    assert set(opened(fs).topics) == {"a", "b"}


async def test_damage_in_the_middle_stops_the_start() -> None:
    """A journal with damage before a whole change is no torn tail: the start names the file and changes nothing."""
    fs = new_disk()
    store = opened(fs)
    for name in "ab":
        await put(store, name)
    data = bytearray(fs.read(JOURNAL))
    data[40] ^= 1
    fs.write_atomic(JOURNAL, bytes(data))
    with pytest.raises(ConfigFileDamaged, match="topic_journal"):
        opened(fs)
    assert fs.read(JOURNAL) == bytes(data)


async def test_a_later_version_is_refused() -> None:
    """A journal of a later version is refused, and not taken for damaged."""
    fs = new_disk()
    fs.append(JOURNAL, checksummed.wrap(topic_journal.KIND, b"{}", version=2))
    with pytest.raises(NewerVersion):
        opened(fs)


async def test_a_stale_journal_beside_newer_topics_changes_nothing() -> None:
    """A journal that a kill left beside a topics.json with its changes is not applied again, and a save removes it."""
    fs = new_disk()
    store = opened(fs)
    await put(store, "a")
    await put(store, "b")
    await remove(store, "a")
    stale = fs.read(JOURNAL)
    await store.save()
    fs.write_atomic(JOURNAL, stale)
    again = opened(fs)
    assert list(again.topics) == ["b"]
    await put(again, "c")
    assert list(opened(fs).topics) == ["b", "c"]
    await again.save()
    assert not fs.exists(JOURNAL)


async def test_the_copy_stands_in_beside_a_journal() -> None:
    """After a kill between file and copy, and damage of the file, the copy and the journal have all topics."""
    fs = new_disk()
    store = opened(fs)
    await put(store, "a")
    await store.save()
    await put(store, "b")

    def no_copy(fs: Fs, path: Path, data: bytes) -> None:
        fs.write_atomic(path, data)
        raise OSError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("libs.log.state.config_file.save", no_copy)
        with pytest.raises(OSError, match="killed"):
            await store.save()
    fs.write_atomic(TOPICS, b"{damaged")
    assert set(opened(fs).topics) == {"a", "b"}


async def test_rocketmq_after_a_kill_and_back() -> None:
    """RocketMQ after a kill lacks the changes of the last seconds; back here no topic that was answered is missing."""
    fs = new_disk()
    store = opened(fs)
    await put(store, "a")
    await store.save()
    for name in "bc":
        await put(store, name, 4)
    seen = topics_json.loads(fs.read(TOPICS).decode())
    assert list(seen.topics) == ["a"]
    made = seen.topics | {"b": TopicConfig("b", 8, 8), "d": TopicConfig("d", 8, 8)}
    fs.write_atomic(TOPICS, topics_json.dumps(TopicsFile(made, DataVersion(3, 77))).encode())
    for _ in range(2):
        assert queues_of(opened(fs)) == {"a": 1, "b": 8, "c": 4, "d": 8}
    store = opened(fs)
    await put(store, "e")
    assert queues_of(opened(fs)) == {"a": 1, "b": 8, "c": 4, "d": 8, "e": 1}
    await store.save()
    assert set(topics_json.loads(fs.read(TOPICS).decode()).topics) == set("abcde")


async def test_a_change_writes_its_own_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change among many topics writes its own bytes; topics.json follows once a thousand changes are due."""
    fs = new_disk()
    store = opened(fs)
    store.create({f"t{number}": TopicConfig(f"t{number}", 4, 4) for number in range(5_000)}, DataVersion(1, 1))
    written: list[int] = []
    for name in ("append", "write_atomic"):
        real = getattr(fs, name)
        monkeypatch.setattr(fs, name, lambda path, data, real=real: (written.append(len(data)), real(path, data)))
    for number in range(topic_store.CHANGE_COUNT_DUE - 1):
        await put(store, f"new{number}")
    assert max(written) < 400
    assert not store.is_due.is_set()
    await put(store, "last")
    assert store.is_due.is_set()
    await store.save()
    assert not fs.exists(JOURNAL)


async def test_a_full_journal_is_taken_into_the_file_by_the_next_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """When no save comes, a change writes topics.json itself before the journal grows beyond its bound."""
    monkeypatch.setattr(topic_store, "JOURNAL_SIZE_BYTES_DUE", 1_000)
    fs = new_disk()
    store = opened(fs)
    for number in range(60):
        await put(store, f"t{number}")
        assert fs.size(JOURNAL) < 4 * 1_000 + 400
    assert len(opened(fs).topics) == 60
