# SPDX-License-Identifier: Apache-2.0
"""Topics: names, the file, and the allowed changes."""

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from libs.formats import store_layout
from libs.formats.config import topics_json
from libs.formats.config.topics_json import TopicConfig, TopicsFile
from libs.formats.state.system_topics import is_system_topic
from libs.log.errors import ConfigFileDamaged
from libs.log.state import config_file, topic_store, topics_file
from libs.machine.errors import DiskFull
from libs.machine.failpoints import armed
from libs.machine.fs import Fs
from libs.machine.testing.memory_fs import everything_survives, nothing_survives
from libs.requests.errors import BadArgument, BadTopicName, TopicNotFound, TopicSetApart
from services.commitlog.engine.write.topics import check_topic_name
from services.commitlog.errors import TopicExists, TopicForbidden
from tests.support.commitlog import DATA_DIR, Machine, append, message
from tests.support.patience import LIMIT_S, eventually

PATH = DATA_DIR / store_layout.TOPICS
BACKUP = config_file.backup_of(PATH)
JOURNAL = DATA_DIR / store_layout.TOPIC_JOURNAL
PLAIN = {"read_queue_count": 0, "write_queue_count": 0, "is_readable": True, "is_writable": True}
SAME = dict.fromkeys(PLAIN)


@pytest.mark.parametrize("name", ["a", "%RETRY%group", "a|b", "A-1_z", "t" * 127])
def test_good_names(name: str) -> None:
    """A name that RocketMQ accepts for a topic is accepted."""
    check_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", "t" * 128, "../x", "a/b", "a.b", "a b", "a\n", "\0", "ä", "a\\b", ".", "..", "/etc/passwd", "a#b"]
)
def test_bad_names(name: str) -> None:
    """A name that could be a path, or that RocketMQ refuses, is refused by field."""
    with pytest.raises(BadTopicName) as caught:
        check_topic_name(name)
    assert caught.value.field == "name"


def test_system_topics() -> None:
    """Topics of the store itself are recognised by name or prefix."""
    assert is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert is_system_topic("rmq_sys_anything")
    assert not is_system_topic("orders")


async def test_a_stop_waits_for_a_change_whose_caller_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop waits for a running change before it closes the store and releases its lock."""
    machine = Machine()
    log = await machine.start()
    disk_is_slow, has_begun, write = threading.Event(), threading.Event(), topics_file.save

    def write_slowly(fs: Fs, data_dir: Path, file: topics_json.TopicsFile) -> None:
        has_begun.set()
        disk_is_slow.wait()
        write(fs, data_dir, file)

    monkeypatch.setattr(topics_file, "save", write_slowly)
    creating = asyncio.create_task(log.topics.create("orders", **PLAIN))
    await asyncio.to_thread(has_begun.wait)
    creating.cancel()
    await asyncio.wait([creating])
    closing = asyncio.create_task(machine.stop(log))
    await asyncio.wait([closing], timeout=0.2)
    assert not closing.done()
    disk_is_slow.set()
    await closing
    assert "orders" in topics_json.loads(machine.fs.read(PATH).decode()).topics


async def test_life_of_a_topic() -> None:
    """Each change is on the disk, durably, when the call returns; after a save topics.json has it, as RocketMQ's."""
    machine = Machine()
    log = await machine.start()
    made = await log.topics.create("orders", **{**PLAIN, "write_queue_count": 9})
    assert (made.read_queue_count, made.write_queue_count, made.permission) == (4, 9, 6)
    with pytest.raises(TopicExists):
        await log.topics.create("orders", **PLAIN)
    changed = await log.topics.update("orders", **{**SAME, "write_queue_count": 2, "is_writable": False})
    assert (changed.read_queue_count, changed.write_queue_count, changed.permission) == (4, 2, 4)
    survived = machine.fs.after_crash()
    assert topics_file.load(survived, DATA_DIR).topics["orders"] == changed
    await log.topics.store.save()
    machine.fs.crash()
    stored = topics_json.loads(machine.fs.read(PATH).decode())
    assert stored.topics["orders"] == changed
    assert stored.data_version.timestamp_ms == machine.clock.now_ms()
    assert "orders" in topics_json.loads(machine.fs.read(BACKUP).decode()).topics
    with pytest.raises(TopicForbidden) as caught:
        await append(log, message())
    assert caught.value.permission == "write"
    await log.topics.delete("orders")
    with pytest.raises(TopicNotFound):
        log.topics.get("orders")
    assert "orders" not in topics_file.load(machine.fs, DATA_DIR).topics
    await machine.kill(log)


async def test_topics_that_are_set_apart() -> None:
    """Appends, creation, changes and deletion of a set-apart topic are refused; its line in the file stays."""
    machine = Machine()
    batches = TopicConfig("batches", 4, 4, attributes={"queue.type": "BatchCQ"})
    machine.fs.make_directory(DATA_DIR / "config")
    topics_file.save(machine.fs, DATA_DIR, TopicsFile({"batches": batches}))
    machine.fs.make_directory(DATA_DIR / "compaction" / "compactionLog" / "keyed" / "0")
    async with machine.running() as log:
        light = {"properties": {"INNER_MULTI_DISPATCH": "%LMQ%a"}}
        calls: list[tuple[Coroutine[Any, Any, Any], str]] = [
            (append(log, message(topic="batches")), "batches"),
            (append(log, message(), message(topic="keyed")), "keyed"),
            (append(log, message(topic="%LMQ%a")), "%LMQ%a"),
            (append(log, message(**light)), "INNER_MULTI_DISPATCH=%LMQ%a"),
            (log.topics.create("keyed", **PLAIN), "keyed"),
            (log.topics.create("%LMQ%a", **PLAIN), "%LMQ%a"),
            (log.topics.update("batches", **{**SAME, "write_queue_count": 9}), "batches"),
            (log.topics.delete("batches"), "batches"),
        ]
        for call, name in calls:
            with pytest.raises(TopicSetApart) as caught:
                await call
            assert caught.value.topic == name
        assert log.chain.max_physical_offset == 0
        assert set(log.topics.set_apart.reasons) == {"batches", "keyed"}
        await append(log, message())
    assert topics_json.loads(machine.fs.read(PATH).decode()).topics["batches"] == batches


async def test_names_that_only_rocketmq_gives() -> None:
    """A pop consumer's retry topic is found and may be deleted; creating it and appends to it are refused."""
    machine = Machine()
    name = "%RETRY%group+orders"
    machine.fs.make_directory(DATA_DIR / "config")
    topics_file.save(machine.fs, DATA_DIR, TopicsFile({name: TopicConfig(name, 1, 1)}))
    async with machine.running() as log:
        assert log.topics.get(name).name == name
        with pytest.raises(BadTopicName):
            await append(log, message(topic=name))
        await log.topics.delete(name)
        with pytest.raises(BadTopicName):
            await log.topics.create(name, **PLAIN)


async def test_an_update_without_a_change_writes_nothing() -> None:
    """A repeated update does not write the file."""
    machine = Machine()
    async with machine.running() as log:
        await log.topics.create("orders", **PLAIN)
        before = machine.files()
        machine.clock.advance(5)
        await log.topics.update("orders", **{**SAME, "read_queue_count": 4})
        assert machine.files() == before


@pytest.mark.parametrize("count", [-1, 65_536])
@pytest.mark.parametrize("field", ["read_queue_count", "write_queue_count"])
async def test_queue_counts(field: str, count: int) -> None:
    """Queue counts outside of 1 to 65,535 are refused by field."""
    machine = Machine()
    async with machine.running() as log:
        with pytest.raises(BadArgument) as caught:
            await log.topics.create("orders", **{**PLAIN, field: count})
        assert (caught.value.field, caught.value.value) == (field, count)
        await log.topics.create("orders", **PLAIN)
        with pytest.raises(BadArgument):
            await log.topics.update("orders", **{**SAME, field: count})


async def test_the_stores_own_topics_are_left_alone() -> None:
    """The store's own topics exist from the first start on, and can't be created, changed or deleted."""
    machine = Machine()
    async with machine.running() as log:
        assert log.topics.get("SCHEDULE_TOPIC_XXXX").write_queue_count == 18
        with pytest.raises(TopicExists):
            await log.topics.create("SCHEDULE_TOPIC_XXXX", **PLAIN)
        with pytest.raises(TopicForbidden):
            await log.topics.update("SCHEDULE_TOPIC_XXXX", **SAME)
        with pytest.raises(TopicForbidden):
            await log.topics.delete("SCHEDULE_TOPIC_XXXX")


async def test_concurrent_creates() -> None:
    """Of two concurrent calls that create the same topic the second gets TopicExists; different topics are created."""
    machine = Machine()
    async with machine.running() as log:
        calls = [log.topics.create(name, **PLAIN) for name in ("a", "b", "a", "c")]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(result, TopicExists) for result in results] == [False, False, True, False]
        assert [topic.name for topic in log.topics.list_after("", 9, include_system=False)] == ["a", "b", "c"]


async def test_a_caller_who_goes_away_leaves_nothing_half_done() -> None:
    """A change whose caller is cancelled while the file is written is finished, and the next change comes after it."""
    machine = Machine()
    async with machine.running() as log:
        entered, go_on = threading.Event(), threading.Event()

        def slow() -> None:
            entered.set()
            assert go_on.wait(LIMIT_S)

        with armed("append.before_sync", slow):
            creating = asyncio.create_task(log.topics.create("orders", **PLAIN))
            await asyncio.to_thread(entered.wait)
            creating.cancel()
            with pytest.raises(asyncio.CancelledError):
                await creating
            go_on.set()
            with pytest.raises(TopicExists):
                await log.topics.create("orders", **PLAIN)
        assert "orders" in topics_file.load(machine.fs, DATA_DIR).topics


async def test_listing() -> None:
    """A list has the topics by name, from behind a name on, with or without the store's own."""
    machine = Machine()
    async with machine.running() as log:
        for name in ("b", "a", "c"):
            await log.topics.create(name, **PLAIN)
        assert [topic.name for topic in log.topics.list_after("a", 9, include_system=False)] == ["b", "c"]
        assert [topic.name for topic in log.topics.list_after("", 2, include_system=True)] == [
            "RMQ_SYS_TRANS_HALF_TOPIC",
            "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        ]
        assert log.topics.list_after("zz", 9, include_system=True) == []
        assert log.topics.user_topic_count == 3 < log.topics.topic_count


@pytest.mark.parametrize("content", [b"", b"{broken", None])
async def test_backup_steps_in(content: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    """A missing, empty or damaged file is replaced by its backup, which has every topic, and the log reports it."""
    machine = Machine()
    async with machine.running() as log:
        await log.topics.create("orders", **PLAIN)
        await log.topics.create("later", **PLAIN)
    if content is None:
        machine.fs.remove(PATH)
    else:
        machine.fs.write_atomic(PATH, content)
    async with machine.running() as log:
        assert log.topics.find("orders") is not None
        assert log.topics.find("later") is not None
    assert str(PATH) in caplog.text


@pytest.mark.parametrize("failing", [PATH, BACKUP])
@pytest.mark.parametrize("content", [b"", b"{broken"])
async def test_damage_never_gets_into_the_backup(content: bytes, failing: Path) -> None:
    """A power cut during either of the two writes loses no topic."""
    machine = Machine()
    async with machine.running() as log:
        await log.topics.create("orders", **PLAIN)
    machine.fs.write_atomic(PATH, content)
    log = await machine.start()
    write = machine.fs.write_atomic

    def fail(path: Path, data: bytes) -> None:
        if path == failing:
            raise OSError("the power goes")
        write(path, data)

    machine.fs.write_atomic = fail  # type: ignore[method-assign]
    await log.topics.create("more", **PLAIN)
    with pytest.raises(OSError, match="power"):
        await log.topics.store.save()
    machine.fs.write_atomic = write  # type: ignore[method-assign]
    machine.fs.crash()
    async with machine.running() as log:
        assert log.topics.find("orders") is not None
        assert log.topics.find("more") is not None


async def test_two_damaged_files_stop_the_start() -> None:
    """If file and backup are damaged the start fails."""
    machine = Machine()
    async with machine.running():
        pass
    machine.fs.write_atomic(PATH, b"{broken")
    machine.fs.write_atomic(BACKUP, b"[]")
    with pytest.raises(ConfigFileDamaged):
        await machine.start()
    assert not machine.exists("abort")


async def test_a_file_of_rocketmq() -> None:
    """Topics that RocketMQ wrote keep fields that Reput ignores; topics without write queues stay unwritable."""
    text = """{
    "dataVersion":{"counter":7,"timestamp":1},
    "topicConfigTable":{
        "TBW102":{"attributes":{"k":"v"},"order":true,"perm":7,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",
                  "topicName":"TBW102","topicSysFlag":1,"writeQueueNums":8},
        "empty":{"perm":6,"readQueueNums":0,"topicName":"empty","writeQueueNums":0}
    }}"""
    machine = Machine()
    machine.fs.make_directory(PATH.parent)
    machine.fs.write_atomic(PATH, text.encode())
    async with machine.running() as log:
        changed = await log.topics.update("TBW102", **{**SAME, "read_queue_count": 5})
        assert (changed.is_ordered, changed.sys_flag, changed.attributes) == (True, 1, {"k": "v"})
        assert topics_file.load(machine.fs, DATA_DIR).data_version.counter == 9
        with pytest.raises(TopicNotFound):
            await append(log, message(topic="empty"))


async def test_a_new_topic_costs_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new topic costs only its own text, because the text of all other topics is kept."""
    machine = Machine()
    async with machine.running() as log:
        for number in range(20):
            await log.topics.create(f"old-{number}", **PLAIN)
        made: list[str] = []
        to_json = topics_json._topic_json

        def noted(topic: TopicConfig) -> dict[str, object]:
            made.append(topic.name)
            return to_json(topic)

        monkeypatch.setattr(topics_json, "_topic_json", noted)
        await log.topics.create("new", **PLAIN)
        await log.topics.update("old-3", **{**SAME, "write_queue_count": 9})
        await log.topics.delete("old-4")
        assert made == ["new", "old-3"]
    stored = topics_json.loads(machine.fs.read(PATH).decode())
    assert (stored.topics["old-3"].write_queue_count, "old-4" in stored.topics) == (9, False)


async def test_readers_read_every_queue_that_may_have_messages() -> None:
    """Readers read the queues of both counts, and queues that had a message before a count was reduced."""
    async with Machine().running() as log:
        await log.topics.create("grow", read_queue_count=2, write_queue_count=2)
        for write_queue_count, expected in ((8, 8), (1, 6)):
            topic = await log.topics.update("grow", write_queue_count=write_queue_count, read_queue_count=1)
            if write_queue_count == 8:
                await append(log, message(topic="grow", queue_id=5))
            assert log.topics.queue_count(topic) == expected
        await log.topics.delete("grow")
        topic = await log.topics.create("grow", read_queue_count=1, write_queue_count=1)
        assert log.topics.queue_count(topic) == 6


async def test_a_topic_survives_a_kill_before_topics_json_has_it() -> None:
    """A topic that was made, changed or deleted just before a kill or a power cut is so after the next start."""
    for survives in (everything_survives, nothing_survives):
        machine = Machine()
        log = await machine.start()
        for name in ("a", "b", "c"):
            await log.topics.create(name, **PLAIN)
        await log.topics.update("a", **{**SAME, "write_queue_count": 9})
        await log.topics.delete("b")
        await machine.kill(log, survives)
        async with machine.running() as log:
            assert log.topics.get("a").write_queue_count == 9
            assert [topic.name for topic in log.topics.list_after("", 9, include_system=False)] == ["a", "c"]
        assert not machine.fs.exists(JOURNAL)


async def test_an_orderly_stop_leaves_all_topics_to_rocketmq() -> None:
    """After an orderly stop topics.json and its copy have each topic, and there is no journal."""
    machine = Machine()
    async with machine.running() as log:
        await log.topics.create("orders", **PLAIN)
        assert "orders" not in topics_json.loads(machine.fs.read(PATH).decode()).topics
    for path in (PATH, BACKUP):
        assert "orders" in topics_json.loads(machine.fs.read(path).decode()).topics
    assert not machine.fs.exists(JOURNAL)


async def test_topics_json_follows_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """topics.json has a change after a while, and soon once many changes are due."""
    monkeypatch.setattr(topic_store, "CHANGE_COUNT_DUE", 3)
    machine = Machine()
    async with machine.running() as log:
        for name in ("a", "b", "c"):
            await log.topics.create(name, **PLAIN)
        await eventually(lambda: "c" in topics_json.loads(machine.fs.read(PATH).decode()).topics)
    monkeypatch.setattr("services.commitlog.engine.open_log.SAVE_INTERVAL_MS", 1)
    async with machine.running() as log:
        await log.topics.create("d", **PLAIN)
        await eventually(lambda: "d" in topics_json.loads(machine.fs.read(PATH).decode()).topics)


async def test_a_store_that_was_killed_on_a_full_disk_keeps_its_journal() -> None:
    """A start on a full disk reads the journal and writes nothing of the topics; topics.json follows when it can."""
    machine = Machine()
    log = await machine.start()
    await log.topics.create("orders", **PLAIN)
    await machine.kill(log)
    write = machine.fs.write_atomic

    def full(path: Path, data: bytes) -> None:
        if path in (PATH, BACKUP):
            raise DiskFull(path, needed_bytes=len(data))
        write(path, data)

    machine.fs.write_atomic = full  # type: ignore[method-assign]
    log = await machine.start()
    assert log.topics.find("orders") is not None
    await log.topics.create("more", **PLAIN)
    await eventually(lambda: log.topic_saving.last_error is not None)
    await machine.kill(log)
    machine.fs.write_atomic = write  # type: ignore[method-assign]
    async with machine.running() as log:
        assert {"orders", "more"} <= set(log.topics.file.topics)
