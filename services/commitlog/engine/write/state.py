# SPDX-License-Identifier: Apache-2.0
"""LogState: what the records of the log add up to, up to its end: what the next one needs.

A start begins with the snapshot of it and takes note of the records behind.
Callers: recovery, before anybody else knows of the store; then the loop that owns the log.
"""

import asyncio
from dataclasses import dataclass, field

from libs.kernel.append.topic_table import TopicTable
from services.commitlog.engine.write.writers import WriterTable


@dataclass(slots=True)
class LogState:
    """The next queue offsets are in the table of the topics, which the kernel keeps."""

    table: TopicTable
    writers: WriterTable
    last_store_time_ms: int = 0
    """Store time of the last record; the next one is never older."""
    revision: int = 0
    """How often queue offsets were changed although the log had no record more."""
    is_worth_saving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a snapshot should follow soon: after a new segment, and when `revision` grows."""
