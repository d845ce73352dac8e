# SPDX-License-Identifier: Apache-2.0
"""Logs with a single segment of some sectors, and the end that a scan of the log finds."""

import random
from pathlib import Path

from libs.kernel.append.topic_table import TopicTable
from libs.log.end import KnownDurable, ScanEnd
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.start.meter import RecoveryMeter
from services.commitlog.engine.start.scan import LogScan
from services.commitlog.engine.write.state import LogState
from services.commitlog.engine.write.writers import WriterTable
from tests.support.records import encoded

SECTOR = 512
SECTOR_COUNT = 8
SIZE = 16 * SECTOR
CONFIG = CommitLogConfig(clock_step_ms_max=1_000)


def tail(seed: int, *, crc_property: bool = True) -> tuple[bytes, list[int]]:
    """Records that fill eight sectors, of texts, zeros and random bytes; where each begins, and where the last ends."""
    chance = random.Random(seed)
    data, bounds = b"", [0]
    while len(data) < (SECTOR_COUNT - 1) * SECTOR:
        kind, size = chance.choice("tzr"), chance.choice((0, 1, 40, 200, 390, 700, 1_500))
        body = {"t": b"text " * size, "z": bytes(size), "r": chance.randbytes(size)}[kind][:size]
        properties = chance.choice((b"", b"TAGS\x01b\x02", b"name\x01" + b"value " * chance.randrange(200) + b"\x02"))
        found = encoded(
            len(data), crc_property=crc_property, body=body, properties=properties, queue_offset=len(bounds) - 1
        )
        if len(data) + len(found) <= SECTOR_COUNT * SECTOR:
            data += found
            bounds.append(len(data))
    return data, bounds


def scan(content: bytes, durable: KnownDurable, **options: int) -> ScanEnd:
    """The end of a log with a single segment."""
    chain = SegmentChain(MemoryFs(), Path("/commitlog"), SIZE).open()
    chain.roll().buffer[: len(content)] = content
    chain.segments[0].advance(SIZE)
    state = LogState(TopicTable(), WriterTable(1, 1, 1), **options)
    return LogScan(chain, state, durable, RecoveryMeter(ManualClock()), CONFIG).run(0)
