# SPDX-License-Identifier: Apache-2.0
"""IndexProgress: the certain content of an Indexer's indexes. Spec: docs/formats/reput_files.md section 3.

RocketMQ has no such file and uses the checkpoint's times.
"""

import enum
from typing import NamedTuple

import msgspec

from libs.formats.state.checksummed import JsonFile

OTHERS = ("", 0)
"""Topic and queue id for the records that were stepped over in all queues without their own note."""


class StepReason(enum.IntEnum):
    """Why records are stepped over. The numbers are the protocol's and the progress file's."""

    QUEUE_OFFSET = 1
    """The queue offset neither continues the queue at its end nor begins it again."""
    NAME = 2
    """The topic's name or the queue's number is not allowed for a directory."""
    SET_APART = 3
    """RocketMQ stores the topic, or this record, in a way that is not served (libs/formats/state/set_apart.py)."""
    TOPIC_DELETED = 4
    """The disk had no room for a new queue, and the log does not know its topic any more."""


class Stepped(msgspec.Struct, frozen=True, array_like=True):
    """The records of a queue that were stepped over for a reason. It is stored in files: new fields are at the end."""

    topic: str
    queue_id: int
    reason: int
    record_count: int
    first_physical_offset: int
    last_physical_offset: int
    last_queue_offset: int


class QueueBegin(NamedTuple):
    """A queue that begins again, with the record that ends at `end_physical_offset`."""

    topic: str
    queue_id: int
    end_physical_offset: int


class IndexProgress(JsonFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The progress of the indexes. Offsets are exclusive ends. Times are milliseconds since 1970, 0 if unknown."""

    KIND = "index-progress"

    epoch: int = 0
    """Epoch of the log that was followed; 0 if no log was followed."""

    is_clean: bool = False
    """True after a clean stop: then the indexes have exactly the records below the two offsets."""

    queue_physical_offset: int = 0
    """Every unit of records below this is synced."""

    index_physical_offset: int = 0
    """Every index entry of records below this is synced. After an unclean stop only finished files are used."""

    index_replay_physical_offset: int = 0
    """Where the unfinished index file begins. A start after an unclean stop fills a new file from here on."""

    index_finished_file: str = ""
    """Name of the newest index file that is full and synced. A start after an unclean stop drops all later files."""

    queue_end_sum: int = -1
    """Sum of the ends of all queues, from only the records below `queue_physical_offset`; -1 if unknown."""

    queue_start_sum: int = -1
    """Sum of the first queue offsets in the first files of all queues; -1 if unknown."""

    queue_file_count: int = -1
    """Files of all queues at a clean stop; -1 if unknown."""

    index_finished_count: int = -1
    """Index files up to `index_finished_file`; -1 if unknown."""

    index_newest_file: str = ""
    """Name of the newest index file at a clean stop; empty without a file."""

    index_newest_entry: int = -1
    """Number of the next entry in `index_newest_file`, 0 without a file; -1 if unknown."""

    queue_time_ms: int = 0
    """Store time of the last record whose unit is synced."""

    stepped_over: list[Stepped] = msgspec.field(default_factory=list)
    """Records below `queue_physical_offset` that are in no queue although they name a queue."""

    queue_begins: list[QueueBegin] = msgspec.field(default_factory=list)
    """Queues that began again, with their first record. Recorded before the older generation's units are deleted."""

    index_time_ms: int = 0
    """Store time of the last record in `index_finished_file`: all entries up to it are in full files and synced."""
