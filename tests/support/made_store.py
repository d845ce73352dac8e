# SPDX-License-Identifier: Apache-2.0
"""A small real store on disk, made by the CommitLog's and the Indexer's engines and stopped in order.

It has several segments, queues of several files, several index files, delayed messages, messages without keys and with
several, IPv6 clients, consumer offsets. Made once; tests damage copies.
"""

import asyncio
import shutil
from pathlib import Path

import pytest

from cli.verify.codes import Area
from cli.verify.findings import Finding, Report
from cli.verify.store import Summary, verify_store
from libs.formats.config import consumer_offsets_json
from libs.formats.config.consumer_offsets_json import ConsumerOffsetsFile
from libs.formats.records.delay_level import DELAY_LEVELS_TEXT
from libs.machine.posix_fs import PosixFs
from libs.machine.testing.manual_clock import ManualClock
from services.commitlog.config import CommitLogConfig
from services.indexer.config import IndexerConfig
from services.indexer.engine.offline_rebuild import rebuild
from tests.support.commitlog import BORN_HOST, BORN_HOST_IPV6, log_on, make_config, message, request

SEGMENT_SIZE = 16_384
QUEUE_FILE_SIZE = 20 * 32
SLOT_COUNT = 32
ENTRY_CAPACITY = 128
MESSAGE_COUNT = 400
NO_DAMAGE = ("lock", "indexer.lock", "topics.json.bak")
"""An empty lock file, and a backup that is not read, are in order."""


def commit_log_config(data_dir: Path) -> CommitLogConfig:
    """Small segments."""
    return make_config(data_dir=data_dir, segment_size_bytes=SEGMENT_SIZE)


def indexer_config(data_dir: Path, message_delay_level: str = DELAY_LEVELS_TEXT) -> IndexerConfig:
    """Small files."""
    return IndexerConfig(
        data_dir=data_dir,
        queue_file_size_bytes=QUEUE_FILE_SIZE,
        index_slot_count=SLOT_COUNT,
        index_entry_capacity=ENTRY_CAPACITY,
        message_delay_level=message_delay_level,
        disk_ballast_bytes=0,
    )


def make_store(data_dir: Path) -> None:
    """Fill a log, stop it, index it, stop that too."""
    asyncio.run(_make(data_dir))


async def index(data_dir: Path, message_delay_level: str = DELAY_LEVELS_TEXT) -> None:
    """Build the indexes of a log anew, as `reput index rebuild` does."""
    config = indexer_config(data_dir, message_delay_level)
    await rebuild(PosixFs(), config, log_data_dir=data_dir, segment_size_bytes=SEGMENT_SIZE, clock=ManualClock())


async def _make(data_dir: Path) -> None:
    clock = ManualClock()
    async with log_on(PosixFs(), commit_log_config(data_dir), clock) as log:
        for number in range(MESSAGE_COUNT):
            clock.advance(1_100)
            properties: dict[str, str] = {}
            if number % 4:
                keys = " ".join([f"key{number}", "shared"][: number % 3])
                properties |= {"KEYS": keys, "UNIQ_KEY": f"id{number:04d}"}
            if number % 2:
                properties["TAGS"] = f"tag{number % 7}"
            if number % 20 == 7:
                properties["DELAY"] = str(1 + number % 18)
            topic = "orders" if number % 5 else "events"
            properties = {name: value for name, value in properties.items() if value}
            body = f"body {number}".encode() * (1 + number % 5)
            made = message(body, topic, queue_id=number % 3, properties=properties)
            await log.pipeline.append(request(made), BORN_HOST_IPV6 if number % 6 == 0 else BORN_HOST)
    await index(data_dir)
    offsets = ConsumerOffsetsFile({("orders", "readers"): {0: 5, 1: 7}, ("events", "readers"): {0: 1}})
    (data_dir / "config").mkdir(exist_ok=True)
    (data_dir / "config" / "consumerOffset.json").write_text(consumer_offsets_json.dumps(offsets))


def verified(data_dir: Path, *, only: Area | None = None, limit: int = 100) -> tuple[Summary, list[Finding], Report]:
    """The results of a check of the store."""
    shown: list[Finding] = []
    report = Report(show=shown.append, limit=limit, areas=frozenset([only]) if only else frozenset(Area))
    return verify_store(data_dir, report), shown, report


@pytest.fixture(scope="session")
def made_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store that all tests copy; never to be changed."""
    path = tmp_path_factory.mktemp("made") / "store"
    make_store(path)
    return path


@pytest.fixture
def store(made_store: Path, tmp_path: Path) -> Path:
    """A copy of the store that may be damaged."""
    return shutil.copytree(made_store, tmp_path / "store")


def files_of(store: Path) -> list[Path]:
    """The files of a store of which each byte counts."""
    return sorted(path for path in store.rglob("*") if path.is_file() and path.name not in NO_DAMAGE)
