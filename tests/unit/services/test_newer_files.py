# SPDX-License-Identifier: Apache-2.0
"""Files of a later version: a service refuses to start, and leaves each file as it is."""

import pytest

from libs.formats import store_layout
from libs.formats.errors import NewerVersion
from libs.formats.state import checksummed
from libs.machine.testing.memory_fs import MemoryFs
from tests.support.commitlog import DATA_DIR as LOG_DIR
from tests.support.commitlog import Machine
from tests.support.fake_log import FakeLog
from tests.support.fake_sink import FakeSink
from tests.support.indexer import DATA_DIR as INDEX_DIR
from tests.support.indexer import make_indexer


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (store_layout.QUEUE_SNAPSHOT, "queue_offsets"),
        (store_layout.HISTORY, "history"),
        (store_layout.REPLICA, "replica"),
        (store_layout.IN_SYNC, "in-sync-set"),
        (store_layout.TOPIC_BEGINS, "topic-begins"),
        (store_layout.TOPIC_JOURNAL, "topic-journal"),
        (store_layout.LOG_DIRECTORIES, "log-directories"),
    ],
)
async def test_the_commit_log_refuses_a_later_file(name: str, kind: str) -> None:
    """The CommitLog refuses a file of a later version, and does not treat it as damaged.

    It would otherwise lose data that the later version promised.
    """
    machine = Machine()
    fs, data = machine.fs, checksummed.wrap(kind, b"{}", version=2)
    async with machine.running():
        pass
    fs.make_directory((LOG_DIR / name).parent)
    fs.write_atomic(LOG_DIR / name, data)
    with pytest.raises(NewerVersion, match=kind):
        await machine.start()
    assert fs.read(LOG_DIR / name) == data


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (store_layout.INDEX_PROGRESS, "index-progress"),
        (store_layout.LOG_HISTORY, "log-history"),
        (store_layout.SHARED_STATE, "shared-state"),
        (store_layout.UNSENT_OFFSETS, "unsent-offsets"),
        (f"{store_layout.INDEX_FILTERS}/20231114221320123", "index-filter"),
    ],
)
def test_the_indexer_refuses_a_later_file(name: str, kind: str) -> None:
    """The Indexer refuses a file of a later version, and drops neither indexes nor ends of queues."""
    fs, data = MemoryFs(), checksummed.wrap(kind, b"{}" * 48, version=2)
    fs.make_directory((INDEX_DIR / name).parent)
    fs.write_atomic(INDEX_DIR / name, data)
    log = FakeLog()
    with pytest.raises(NewerVersion, match=kind):
        make_indexer(log, fs, sink=FakeSink(log))
    assert fs.read(INDEX_DIR / name) == data
