# SPDX-License-Identifier: Apache-2.0
"""Processor time of the Indexer for the messages of a pull of one of four queues: as StoredMessages, and as records."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from reput.common.v1 import message_pb2

from bench import batches
from bench.inside.kernel import LIMITS, STORE_HOST, STORE_TIME_MS, best_s
from bench.peers.peer import Durability
from bench.results import Figures
from libs.formats import limits
from libs.formats.records.host import Host
from libs.kernel.append import append_cy
from libs.kernel.append.append_columns import AppendColumns
from libs.kernel.append.topic_table import TopicTable
from services.indexer.engine.log.source import RecordBlock
from services.indexer.rpc.responses import PULL, with_messages

SEGMENT_SIZE_BYTES = 64 << 20
MESSAGE_COUNT_MAX = 1_024
HEAD = b"\x08\x01\x18\x05"
"""Status and next queue offset."""


def answers(body_size_bytes: int) -> Callable[[Path, Durability, float], Figures]:
    """Make the answer to a pull in both forms, from records that were read and checked."""

    def measure(folder: Path, mode: Durability, seconds: float) -> Figures:
        del folder, mode, seconds  # in memory, and as long as it takes to be steady
        found = block(body_size_bytes)
        count = len(found.sizes)
        messages_s = best_s(lambda: with_messages(HEAD, found, PULL, wants_records=False))
        records_s = best_s(lambda: with_messages(HEAD, found, PULL, wants_records=True))
        return {
            "messages_ns_per_message": messages_s / count * 1e9,
            "records_ns_per_message": records_s / count * 1e9,
        }

    return measure


def block(body_size_bytes: int) -> RecordBlock:
    """Return records of one of four queues, among the records of the others."""
    segment = bytearray(SEGMENT_SIZE_BYTES)
    table = TopicTable()
    table.put_topic(batches.TOPIC.encode(), write_queue_count=batches.QUEUE_COUNT, is_writable=True)
    table.put_topic(b"SCHEDULE_TOPIC_XXXX", write_queue_count=18, is_writable=False)
    columns = AppendColumns(limits.BATCH_MESSAGE_COUNT_MAX)
    born_host = Host.parse("127.0.0.1:1000").to_bytes()
    offsets: list[int] = []
    position = 0
    for variant in range(batches.VARIANT_COUNT):
        request = batches.build(
            body_size_bytes=body_size_bytes,
            batch_size_bytes=1 << 20,
            durability=message_pb2.DURABILITY_MEMORY,
            variant=variant,
        )
        end = append_cy.append(
            request.data, segment, position, 0, STORE_TIME_MS, born_host, STORE_HOST, table, LIMITS, columns
        )
        assert end > 0
        offsets += columns.physical_offsets[: columns.count]
        position = end
    starts = np.array([*offsets, position], np.int64)
    rows = np.arange(0, len(offsets), batches.QUEUE_COUNT)[:MESSAGE_COUNT_MAX]
    return RecordBlock(memoryview(segment), starts[rows], (starts[rows + 1] - starts[rows]).astype(np.int32))
