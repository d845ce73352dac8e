# SPDX-License-Identifier: Apache-2.0
"""SetApart: attributes decide which topics are set apart; directories decide if topics.json does not have the topic."""

from pathlib import Path

import pytest

from libs.formats import store_layout
from libs.formats.config.topics_json import TopicConfig, TopicsFile
from libs.formats.state.set_apart import BATCH_QUEUE, COMPACTED, LIGHT_QUEUE
from libs.log.errors import ConfigFileDamaged
from libs.log.state import topics_file
from libs.log.state.set_apart import SetApart
from libs.machine.testing.memory_fs import MemoryFs

DATA_DIR = Path("/store")


def disk(*queues: str) -> MemoryFs:
    """A store with these directories of queues, each with a file."""
    fs = MemoryFs()
    for queue in queues:
        fs.make_directory(DATA_DIR / queue)
        fs.write_atomic(DATA_DIR / queue / f"{0:020d}", b"x")
    fs.make_directory(DATA_DIR / "config")
    return fs


def topic(name: str, **attributes: str) -> TopicConfig:
    """A topic with attributes, underscores for their dots."""
    named = {key.replace("_", "."): value for key, value in attributes.items()}
    return TopicConfig(name, 1, 1, attributes=named)


def test_nothing_is_apart_in_an_ordinary_store() -> None:
    """Neither ordinary queues nor the directories beside them set a topic apart."""
    found = SetApart.load(disk("consumequeue/orders/0", "consumequeue_ext/orders/0"), DATA_DIR)
    assert (found.reasons, found.why("orders"), found.why("%LMQ%a")) == ({}, "", LIGHT_QUEUE)


def test_attributes_decide() -> None:
    """Attributes count more than directories, which a deleted topic of the same name may have left."""
    fs = disk("batchconsumequeue/left/0", "compaction/compactionLog/old/1")
    topics = [topic("left"), topic("old"), topic("batches", queue_type="BatchCQ")]
    topics_file.save(fs, DATA_DIR, TopicsFile({one.name: one for one in topics}))
    assert SetApart.load(fs, DATA_DIR).reasons == {"batches": BATCH_QUEUE}
    assert SetApart.load(fs, DATA_DIR, topics[:1]).reasons == {"old": COMPACTED}


def test_directories_stand_in() -> None:
    """If topics.json lacks a topic, its files decide; an empty directory does not count."""
    fs = disk("batchconsumequeue/batches/0", "compaction/compactionLog/keyed/1")
    fs.make_directory(DATA_DIR / "batchconsumequeue" / "gone")
    assert SetApart.load(fs, DATA_DIR).reasons == {"batches": BATCH_QUEUE, "keyed": COMPACTED}


def test_the_backup_stands_in() -> None:
    """A damaged list is read from its backup; without a backup ConfigFileDamaged is raised."""
    fs = disk()
    topics_file.save(fs, DATA_DIR, TopicsFile({"batches": topic("batches", queue_type="BatchCQ")}))
    fs.write_atomic(DATA_DIR / store_layout.TOPICS, b"{")
    assert SetApart.load(fs, DATA_DIR).reasons == {"batches": BATCH_QUEUE}
    fs.write_atomic(DATA_DIR / "config" / "topics.json.bak", b"{")
    with pytest.raises(ConfigFileDamaged):
        SetApart.load(fs, DATA_DIR)


def test_learning() -> None:
    """Topics learned from another service count as well, until it reports others."""
    found = SetApart({"keyed": COMPACTED})
    found.learn({"batches": BATCH_QUEUE})
    assert (found.why("batches"), found.why("keyed")) == (BATCH_QUEUE, COMPACTED)
    found.learn({})
    assert (found.why("batches"), found.why("keyed")) == ("", COMPACTED)
