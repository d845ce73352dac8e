# SPDX-License-Identifier: Apache-2.0
"""The load: every flight as a message, and a record of the places and times that the store returned.

Invariant: row i of the record is row i of the source. The record gives the expected answers about queues, offsets and
store times, which only the store can know; all other answers are compared only with the source.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from reput_client import Client, NewMessage, NotFoundError, ReputError, SendResult

from demo.source import TOPIC, Source

QUEUE_COUNT = 4
SEND_COUNT = 2_000
"""Messages per call of the producer; it makes its own batches of them."""

INDEX_TIMEOUT_S = 600.0
POLL_INTERVAL_S = 0.01


class LoadFailed(RuntimeError):
    """The store already holds flights, refused a message, or does not index them."""


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """The place of each row in the store, by column."""

    physical_offsets: list[int]
    queue_ids: list[int]
    queue_offsets: list[int]
    store_times_ms: list[int]
    unique_ids: list[str]
    offset_message_ids: list[str]

    def __len__(self) -> int:
        return len(self.physical_offsets)

    def save(self, path: Path) -> None:
        """Writes the record to a Parquet file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(asdict(self)), path)

    @classmethod
    def read(cls, path: Path) -> "LoadRecord":
        """Reads a saved record."""
        return cls(**parquet.read_table(path).to_pydict())


@dataclass(frozen=True, slots=True)
class LoadRates:
    """The rates of the load."""

    message_count: int
    append_seconds: float
    index_lag_seconds: float
    """From the last acknowledgement until all messages were indexed."""
    log_size_bytes: int

    @property
    def messages_per_second(self) -> float:
        """Acknowledged messages per second."""
        return self.message_count / self.append_seconds


def load(client: Client, source: Source, on_stored: Callable[[int], None]) -> tuple[LoadRecord, LoadRates]:
    """Appends all rows in their order and waits until they are indexed. Raises LoadFailed and ReputError.

    `on_stored` is called with the number of messages that were acknowledged since the call before.
    """
    make_topic(client)
    started = time.monotonic()
    start_physical_offset = client.admin.commitlog_status().max_physical_offset
    futures: list[Future[list[SendResult | ReputError]]] = []
    with client.producer() as producer:
        for start in range(0, len(source), SEND_COUNT):
            rows = range(start, min(start + SEND_COUNT, len(source)))
            future = producer.send_batch([message(source, row) for row in rows])
            future.add_done_callback(lambda done: on_stored(len(done.result())))
            futures.append(future)
    append_seconds = time.monotonic() - started
    end_physical_offset = client.admin.commitlog_status().max_physical_offset
    wait_indexed(client, end_physical_offset)
    lag_seconds = time.monotonic() - started - append_seconds
    results = [outcome for future in futures for outcome in future.result()]
    rates = LoadRates(len(results), append_seconds, lag_seconds, end_physical_offset - start_physical_offset)
    return record_of(results), rates


def make_topic(client: Client) -> None:
    """Creates the topic. Raises LoadFailed if it exists and ever had messages."""
    try:
        client.topics.get(TOPIC)
    except NotFoundError:
        client.topics.create(TOPIC, read_queue_count=QUEUE_COUNT, write_queue_count=QUEUE_COUNT)
    if any(queue.max_queue_offset for queue in client.queues.list(TOPIC)):
        raise LoadFailed(f"topic {TOPIC} already has messages; load into an empty store, or check without --load")


def message(source: Source, row: int) -> NewMessage:
    """Returns a flight as a message."""
    return NewMessage(
        TOPIC, source.bodies[row], source.tags[row], source.keys(row), born_time_ms=source.born_times_ms[row]
    )


def record_of(results: list[SendResult | ReputError]) -> LoadRecord:
    """Returns the record of all outcomes. Raises LoadFailed if a message was refused."""
    stored = [result for result in results if isinstance(result, SendResult)]
    if len(stored) != len(results):
        row, refusal = next((row, result) for row, result in enumerate(results) if not isinstance(result, SendResult))
        raise LoadFailed(f"{len(results) - len(stored)} messages were refused, first row {row}: {refusal}")
    return LoadRecord(
        physical_offsets=[result.physical_offset for result in stored],
        queue_ids=[result.queue_id for result in stored],
        queue_offsets=[result.queue_offset for result in stored],
        store_times_ms=[result.store_time_ms for result in stored],
        unique_ids=[result.unique_id for result in stored],
        offset_message_ids=[result.offset_message_id for result in stored],
    )


def wait_indexed(client: Client, end_physical_offset: int) -> None:
    """Waits until all messages below a physical offset are indexed. Raises LoadFailed."""
    deadline = time.monotonic() + INDEX_TIMEOUT_S
    while time.monotonic() < deadline:
        status = client.admin.indexer_status()
        if status.indexed_physical_offset >= end_physical_offset:
            return
        time.sleep(POLL_INTERVAL_S)
    raise LoadFailed(
        f"indexed up to {status.indexed_physical_offset} of {end_physical_offset} after {INDEX_TIMEOUT_S:.0f} s; "
        f"last error: {status.last_error or 'none'}"
    )
