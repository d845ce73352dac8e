# SPDX-License-Identifier: Apache-2.0
"""Frames against real services: what is written is read, while the Indexer and the CommitLog are killed."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest
import reput_client
from reput_client import frames

from tests.support.fixed_service import FixedService
from tests.support.patience import LIMIT_S

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

ROW_COUNT = 60_000
BODY = "x" * 5_000
MEMORY_BYTES_MAX = 256 << 20
READER = """
import sys, reput_client
from reput_client import frames
rows = 0
for batch in frames.read(sys.argv[1], "orders"):
    rows += batch.num_rows
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(rows, int(peak.split()[1]) * 1024)
"""


class Store(NamedTuple):
    """The services, and a client that is patient while they start again."""

    log: FixedService
    indexer: FixedService
    client: reput_client.Client

    def wait_indexed(self) -> None:
        """Wait until the Indexer has all messages."""
        admin, end_s = self.client.admin, time.monotonic() + LIMIT_S
        while admin.indexer_status().indexed_physical_offset < admin.commitlog_status().max_physical_offset:
            assert time.monotonic() < end_s, "the Indexer does not catch up"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store whose topic `orders` was written as a table while its CommitLog was killed."""
    directory: Path = tmp_path_factory.mktemp("store")
    log = FixedService("commitlog", directory / "log").start()
    indexer = FixedService("indexer", directory / "indexes", "--commitlog-target", log.target).start()
    retry = reput_client.RetryPolicy(retries=100)
    with reput_client.connect(commitlog=log.target, indexer=indexer.target, timeout_s=LIMIT_S, retry=retry) as client:
        running = Store(log, indexer, client)
        written = frames.write(
            client, "orders", batches(killing=log), key="id", tag="tag", queue_id="queue", writer_id="import-1"
        )
        assert written.message_count == ROW_COUNT
        running.wait_indexed()
        yield running
    indexer.stop()
    log.stop()


def batches(killing: FixedService | None = None) -> Iterator[pa.RecordBatch]:
    """Yield all rows, and kill a service in the middle."""
    for first in range(0, ROW_COUNT, 10_000):
        if killing is not None and first == ROW_COUNT // 2:
            killing.kill()
        numbers = range(first, first + 10_000)
        yield pa.record_batch(
            {
                "value": [f"{number} {BODY}" for number in numbers],
                "id": numbers,
                "tag": ["even", "odd"] * 5_000,
                "queue": [number % 4 for number in numbers],
            }
        )


def numbers_of(found: Any) -> list[int]:
    return [int(body.split(b" ", 1)[0]) for batch in found for body in batch["value"].to_pylist()]


IN_ORDER = [number for queue in range(4) for number in range(queue, ROW_COUNT, 4)]
"""The numbers of all rows, queue by queue."""


def test_a_written_table_is_read(store: Store) -> None:
    """Each row once although the CommitLog was killed, by queue and queue offset; a repeated write adds none."""
    assert numbers_of(frames.read(store.client, "orders")) == IN_ORDER
    again = frames.write(store.client, "orders", batches(), key="id", tag="tag", queue_id="queue", writer_id="import-1")
    assert (again.message_count, again.repeated_message_count) == (ROW_COUNT, ROW_COUNT)
    found = frames.read(store.client, "orders", columns=["partition", "offset", "tag"])
    assert found.planned_row_count == ROW_COUNT
    rows = duckdb.sql('SELECT partition, count(*), max("offset"), min(tag) FROM found GROUP BY 1 ORDER BY 1').fetchall()
    assert rows == [(queue, 15_000, 14_999, ("even", "odd")[queue % 2]) for queue in range(4)]


def test_an_indexer_that_is_killed_changes_no_row(store: Store) -> None:
    """Also when it is killed several times, in the middle of several streams."""
    found: list[int] = []
    kills_at = [1, ROW_COUNT // 3, ROW_COUNT * 2 // 3]
    with frames.read(store.client, "orders", window_bytes=4 << 20) as read:
        for batch in read:
            found += numbers_of([batch])
            if kills_at and len(found) >= kills_at[0]:
                del kills_at[0]
                store.indexer.kill()
    assert kills_at == []
    assert found == IN_ORDER
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("reput-frames")] == []


def test_filters(store: Store) -> None:
    """By key, tag, queue and offsets, and with a plan of nothing."""
    client = store.client
    assert sorted(numbers_of(frames.read(client, "orders", keys=["7", "50001", "none"]))) == [7, 50_001]
    assert numbers_of(frames.read(client, "orders", tags="odd", queue_ids=[0, 1])) == list(range(1, ROW_COUNT, 4))
    cut = frames.read(client, "orders", queue_ids=[2], offsets={2: (10, 12)})
    assert (cut.planned_row_count, numbers_of(cut)) == (2, [42, 46])
    assert numbers_of(frames.read(client, "orders", where="TAGS = 'odd'", queue_ids=[0])) == []
    assert numbers_of(frames.read(client, "orders", end=1_500_000_000_000)) == []
    with pytest.raises(reput_client.InvalidArgumentError):
        frames.read(client, "orders", where="TAGS = ")


def test_memory_of_a_reader(store: Store) -> None:
    """A process that reads the topic, which is larger, has at most 256 MB."""
    command = [sys.executable, "-c", READER, store.indexer.target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    row_count, peak_bytes = map(int, done.stdout.split())
    assert row_count == ROW_COUNT
    assert peak_bytes < MEMORY_BYTES_MAX, f"{peak_bytes:,} bytes"
    print(f"peak {peak_bytes:,} bytes")
