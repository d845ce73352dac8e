# SPDX-License-Identifier: Apache-2.0
"""IndexProgress: what the indexes of an Indexer hold for certain. Spec: docs/formats/reput_files.md section 3.

RocketMQ has no such file and goes by the checkpoint's times.
"""

import enum
from typing import NamedTuple

import msgspec

from libs.formats.state.checksummed import JsonFile

OTHERS = ("", 0)
"""Topic and queue id of the records that were stepped over in all queues that have no note of their own."""


class StepReason(enum.IntEnum):
    """Why records are stepped over; the numbers are those of the protocol and of the progress file."""

    QUEUE_OFFSET = 1
    """The queue offset neither goes on where the queue ends nor begins it again."""
    NAME = 2
    """No directory may have the name of the topic or the number of the queue."""
    SET_APART = 3
    """RocketMQ keeps the topic, or this record, in a way that is not served (libs/formats/state/set_apart.py)."""
    TOPIC_DELETED = 4
    """The disk had no room for a new queue, and the log does not know its topic any more."""


class Stepped(msgspec.Struct, frozen=True, array_like=True):
    """The records of one queue that were stepped over for one reason. Files keep it: fields are added at the end."""

    topic: str
    queue_id: int
    reason: int
    record_count: int
    first_physical_offset: int
    last_physical_offset: int
    last_queue_offset: int


class QueueBegin(NamedTuple):
    """A queue that begins again, with the record that ends here."""

    topic: str
    queue_id: int
    end_physical_offset: int


class IndexProgress(JsonFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to go on. Offsets are exclusive ends; times are milliseconds since 1970, 0 if unknown."""

    KIND = "index-progress"

    epoch: int = 0
    """Epoch of the log that was followed; 0 if none was."""

    is_clean: bool = False
    """True if the process stopped orderly: then everything below the two offsets is there, and nothing else."""

    queue_physical_offset: int = 0
    """Every unit of records below this is synced."""

    index_physical_offset: int = 0
    """Every index entry of records below this is synced; after an unclean stop only those in finished files count."""

    index_replay_physical_offset: int = 0
    """Where the unfinished index file begins: from here an unclean start fills a new one."""

    index_finished_file: str = ""
    """Name of the newest index file that is full and synced; an unclean start drops all later ones."""

    queue_end_sum: int = -1
    """Sum of the ends of all queues, counting only records below `queue_physical_offset`; -1 if unknown."""

    queue_start_sum: int = -1
    """Sum of the queue offsets with which the first files of all queues begin; -1 if unknown."""

    queue_file_count: int = -1
    """Files of all queues at a clean stop; -1 if unknown."""

    index_finished_count: int = -1
    """Index files up to `index_finished_file`; -1 if unknown."""

    index_newest_file: str = ""
    """Name of the newest index file at a clean stop; empty if there was none."""

    index_newest_entry: int = -1
    """The entry that comes next in it, 0 without a file; -1 if unknown."""

    queue_time_ms: int = 0
    """Store time of the last record whose unit is synced."""

    stepped_over: list[Stepped] = msgspec.field(default_factory=list)
    """Records below `queue_physical_offset` that are in no queue although they name one."""

    queue_begins: list[QueueBegin] = msgspec.field(default_factory=list)
    """Queues that began again, and with which record; said before the units of their older generation go."""

    index_time_ms: int = 0
    """Store time of the last record in `index_finished_file`: all entries up to it are in full files and synced."""
