# SPDX-License-Identifier: Apache-2.0
"""Names of all files of a store, relative to its data directory, and the meaning of numbered names.

A segment is named by the physical offset of its first byte, and a file of a queue by the byte position of its first
unit, so the name alone identifies the content. An index file is named by the local time of its creation.
Owners: ARCHITECTURE.md. Specs: docs/formats/commit_log.md section 2, index_file.md, index_filter.md, config_files.md,
reput_files.md.
RocketMQ's counterpart is StorePathConfigHelper.
"""

import re
from datetime import datetime

from libs.formats.errors import BadField

LOCK = "lock"
LOCK_CONTENT = b"lock"
"""The content of all lock files, as of RocketMQ's lock file."""
ABORT = "abort"
RESTORING = "restoring"
"""Directory of a restore from a backup. Until the restore ends there is no segment beside it."""
CHECKPOINT = "checkpoint"
EPOCHS = "epochFileCheckpoint"

COMMIT_LOG = "commitlog"
"""Directory of the segments, unless the settings name others."""
QUEUES = "consumequeue"
"""Directory of the queues. The files of a queue are in <topic>/<queue id> in it."""
INDEX = "index"

CONFIG = "config"
TOPICS = f"{CONFIG}/topics.json"
CONSUMER_OFFSETS = f"{CONFIG}/consumerOffset.json"
DELAY_OFFSETS = f"{CONFIG}/delayOffset.json"
GROUP_CONFIGS = f"{CONFIG}/subscriptionGroup.json"
TIMER_CHECKPOINT = f"{CONFIG}/timercheck"

REPUT = "reput"
"""Directory of the files that only Reput has."""
QUEUE_SNAPSHOT = f"{REPUT}/queue_offsets"
HISTORY = f"{REPUT}/history"
REPLICA = f"{REPUT}/replica"
IN_SYNC = f"{REPUT}/in_sync_set"
LOG_DIRECTORIES = f"{REPUT}/log_directories"
TOPIC_BEGINS = f"{REPUT}/topic_begins"
TOPIC_JOURNAL = f"{REPUT}/topic_journal"
CUT = f"{REPUT}/cut"
BALLAST = f"{REPUT}/ballast"
INDEX_PROGRESS = f"{REPUT}/index_progress"
LOG_HISTORY = f"{REPUT}/log_history"
SHARED_STATE = f"{REPUT}/shared_state"
UNSENT_OFFSETS = f"{REPUT}/unsent_offsets"
INDEXER_LOCK = f"{REPUT}/indexer.lock"
INDEX_BALLAST = f"{REPUT}/index_ballast"
INDEX_FILTERS = f"{REPUT}/index_filters"
"""Directory of the filters of finished index files, which have the names of these files."""
RETENTION_HISTORY = f"{REPUT}/retention_history.jsonl"

BACKUP_SUFFIX = ".bak"
"""Suffix of the copy of a file, which replaces a damaged file."""

BATCH_QUEUES, QUEUE_EXTENSIONS = "batchconsumequeue", "consumequeue_ext"
TIMER_WHEEL = "timerwheel"
TIMER_LOG, COMPACTION = "timerlog", "compaction"
"""A file and directories that only RocketMQ has."""
COMPACTED_LOG, COMPACTED_QUEUES = f"{COMPACTION}/compactionLog", f"{COMPACTION}/compactionCq"

OFFSET_MAX = 2**63 - 1
FILE_NAME_DIGIT_COUNT = 20
_OFFSET_NAME = re.compile(r"[0-9]{20}", re.ASCII)
_INDEX_NAME = re.compile(r"[0-9]{17}", re.ASCII)


def segment_base(physical_offset: int, segment_size_bytes: int) -> int:
    """Return the physical offset of the first byte of the segment that has this offset."""
    assert physical_offset >= 0
    assert segment_size_bytes > 0
    return physical_offset - physical_offset % segment_size_bytes


def file_name(base: int) -> str:
    """Return the name of the file whose first byte has this offset: 20 decimal digits."""
    assert 0 <= base <= OFFSET_MAX
    return f"{base:0{FILE_NAME_DIGIT_COUNT}d}"


def is_file_name(name: str) -> bool:
    """Return whether the name is 20 digits of an offset."""
    return _OFFSET_NAME.fullmatch(name) is not None and int(name) <= OFFSET_MAX


def parse_file_name(name: str) -> int:
    """Return the offset of the first byte of a file of this name. Raises BadField for other names."""
    if not is_file_name(name):
        raise BadField(position=0, reason=f"{name[:40]!r} is not a file name of 20 digits", field="file name")
    return int(name)


def cut_name(physical_offset: int, epoch: int) -> str:
    """Return the name of the copy of a tail that was truncated here, when this epoch began."""
    return f"{file_name(physical_offset)}-{epoch}"


def cut_offset(name: str) -> int | None:
    """Return the physical offset of the first byte of such a copy, None for another name."""
    offset, _, _ = name.partition("-")
    return int(offset) if is_file_name(offset) else None


def index_file_name(created: datetime) -> str:
    """Return 17 digits, `yyyyMMddHHmmssSSS`, of the time in the caller's zone (RocketMQ: the local zone)."""
    return f"{created:%Y%m%d%H%M%S}{created.microsecond // 1000:03d}"


def is_index_file_name(name: str) -> bool:
    """Return whether the name is 17 digits. Index files are ordered by their names."""
    return _INDEX_NAME.fullmatch(name) is not None
