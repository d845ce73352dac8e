# SPDX-License-Identifier: Apache-2.0
"""The possible findings of `reput verify`: every code with its area, severity, meaning, and action.

Codes are stable: scripts use them. docs/cli.md prints this table.
A fault is only a note if the next start of a service repairs it by itself, as after an unclean stop.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

from msgspec import Struct

Severity: TypeAlias = Literal["fault", "note"]


class Area(StrEnum):
    """Parts of a store that can be checked alone."""

    LOG = "log"
    QUEUES = "queues"
    INDEX = "index"
    FILES = "files"


class Code(Struct, frozen=True):
    """A kind of finding. A code without an area is reported for every selection."""

    area: Area | None
    severity: Severity
    meaning: str
    action: str


RESTORE = "the log itself is damaged: restore it from a replica or a backup; `reput inspect FILE` names the bytes"
REBUILD = "stop the Indexer and run `reput index rebuild`: queues and index are made again from the log"
RECOVER = "nothing: the next start of the CommitLog truncates it and keeps a copy in `reput/cut/`"
NOTHING = "nothing"
REPLACE = "stop the service and restore the file from a backup, or remove it"
REFILTER = "stop the Indexer and remove the filter: the Indexer makes it again"
CLEAR = "find out its origin, and move it away"
EXPIRE = "nothing: the next retention run deletes them; `reput index rebuild` would bring them back"
RESCAN = "remove it: the next start scans the log"
WAIT = "nothing: the Indexer continues there when it runs"

_LOG: dict[str, tuple[Severity, str, str]] = {
    "LOG_FILE_NAME": ("fault", "a name in a directory of the log is not the name of a segment", CLEAR),
    "LOG_FILE_SIZE": ("fault", "a segment has another size than the others", RESTORE),
    "LOG_FILE_MISSING": ("fault", "a segment between two others is missing", RESTORE),
    "LOG_START_MISSING": ("fault", "the oldest segments are missing, and Reput did not delete them", RESTORE),
    "LOG_FILE_TWICE": ("fault", "two directories of the log have a segment of the same name", CLEAR),
    "LOG_DIRECTORY_MISSING": ("fault", "a directory of the log is not there", "mount its disk"),
    "LOG_DIRECTORIES_DAMAGED": (
        "fault",
        "`reput/log_directories` can't be read; only `commitlog/` is checked",
        "start the CommitLog with its `log_dirs`: it writes the file anew",
    ),
    "LOG_RECORD_MAGIC": ("fault", "no record starts where a record should, but whole records follow", RESTORE),
    "LOG_RECORD_LENGTH": ("fault", "the lengths in a record contradict each other", RESTORE),
    "LOG_RECORD_OFFSET": ("fault", "a record names another place as its own", RESTORE),
    "LOG_BODY_CRC": ("fault", "a body does not have its checksum", RESTORE),
    "LOG_PROPERTY_CRC": ("fault", "a record does not have the checksum of its CRC property", RESTORE),
    "LOG_PROPERTY_CRC_MISSING": (
        "fault",
        "a record lacks the CRC property that others around it have; a note if it does not end in zeros",
        RESTORE,
    ),
    "LOG_HOLE": ("fault", "zeros in the middle of the log", RESTORE),
    "LOG_BLANK_SIZE": ("fault", "the blank that closes a segment does not reach to its end", RESTORE),
    "LOG_HOST_PORT": ("fault", "a host in a record has an impossible port: wrong bytes, or a wrong IPv6 bit", RESTORE),
    "LOG_STORE_TIME": ("note", "store times decrease, as after a change of the clock", NOTHING),
    "LOG_STALE_RECORD": (
        "fault",
        "a record past the synced end is much older than the record before it: a remainder of an older log",
        RESTORE,
    ),
    "LOG_QUEUE_NAME": ("fault", "records have an impossible topic or queue", RESTORE),
    "LOG_QUEUE_OFFSET": ("fault", "a record has an impossible queue offset", RESTORE),
    "LOG_QUEUE_OFFSET_GAP": ("fault", "queue offsets of a queue's records have a gap", RESTORE),
    "LOG_QUEUE_OFFSET_REPEAT": ("fault", "a queue offset occurs a second time in the log", RESTORE),
    "LOG_TORN_TAIL": ("fault", "an unfinished record at the end of the log; a note if the stop was not clean", RECOVER),
    "LOG_RUBBISH": ("fault", "bytes in the unwritten space behind the end of the log", RECOVER),
}
_QUEUES: dict[str, tuple[Severity, str, str]] = {
    "QUEUE_DIRECTORY_NAME": ("fault", "a name in `consumequeue/` is neither a topic nor a queue", CLEAR),
    "QUEUE_FILE_NAME": ("fault", "a file of a queue has an impossible name", CLEAR),
    "QUEUE_FILE_SIZE": ("fault", "a file of a queue has another size than the others of the store", REBUILD),
    "QUEUE_FILE_MISSING": ("fault", "a file of a queue between two others is missing", REBUILD),
    "QUEUE_MISSING": ("fault", "the log has records of a queue that has no file", REBUILD),
    "QUEUE_UNIT_MISSING": ("fault", "records at the end of a queue have no unit", REBUILD),
    "QUEUE_UNIT_HOLE": ("fault", "zeros between the units of a queue", REBUILD),
    "QUEUE_UNIT_INVALID": ("fault", "a unit has impossible values", REBUILD),
    "QUEUE_UNIT_SIZE": ("fault", "a unit has another size than its record", REBUILD),
    "QUEUE_UNIT_TAGS": ("fault", "a unit has another tags code than its record", REBUILD),
    "QUEUE_DELIVERY_TIME": (
        "fault",
        "a unit of a delayed message has another delivery time than its delay level gives",
        REBUILD,
    ),
    "QUEUE_DELIVERY_HASH": (
        "note",
        "a hash is in place of a delivery time, as RocketMQ 4.9 leaves it when it starts after an unclean stop",
        "nothing; RocketMQ delivers such a message at once, and a rebuild repairs the unit",
    ),
    "QUEUE_UNIT_OTHER_RECORD": ("fault", "a unit points to a record other than its own", REBUILD),
    "QUEUE_UNIT_TO_NOTHING": ("fault", "a unit points to a place where no record starts", REBUILD),
    "QUEUE_UNIT_PAST_END": ("fault", "a unit points behind the end of the log", REBUILD),
    "QUEUE_UNIT_ORDER": ("fault", "a unit of a deleted record is not in the order of the log", REBUILD),
    "QUEUE_PRE_BLANK": ("fault", "a filler is in the place of a unit", REBUILD),
    "QUEUE_RUBBISH": ("fault", "bytes behind the last unit of a queue that are no units", REBUILD),
    "QUEUES_BEHIND": ("note", "the queues do not have the newest records yet", WAIT),
    "QUEUES_TRIMMED": (
        "note",
        "the Indexer has dropped records that were about to expire, and the log still has them",
        EXPIRE,
    ),
    "QUEUES_REMOVED": (
        "note",
        "an operator had queues removed, and the log still has their records",
        "nothing: the records expire with the others; `reput index rebuild` would bring the queues back",
    ),
    "QUEUES_BEGUN_AGAIN": (
        "note",
        "queue offset 0 occurs again in the log: RocketMQ had deleted the topic or the queue, and made it again",
        NOTHING,
    ),
    "RECORDS_STEPPED_OVER": (
        "note",
        "records fit no queue, and the Indexer has stepped over them",
        "nothing: they are found by key, and by id if they have a key; `reput status` names queues, places and reasons",
    ),
    "QUEUE_UNIT_UNCHECKED": ("note", "units point into damaged parts of the log and can't be judged", NOTHING),
    "QUEUE_NOT_CHECKED": ("note", "a kind of queue of RocketMQ that is not checked", NOTHING),
}
_INDEX: dict[str, tuple[Severity, str, str]] = {
    "INDEX_TRIMMED": (
        "note",
        "the Indexer has dropped keys of records that were about to expire, and the log still has them",
        EXPIRE,
    ),
    "INDEX_FILE_NAME": ("fault", "a name in `index/` is not the name of an index file", CLEAR),
    "INDEX_FILE_SIZE": ("fault", "an index file has a size that does not fit; it is not checked", REBUILD),
    "INDEX_FILE_GIVEN_UP": ("fault", "an index file has so many wrong entries that the rest is not checked", REBUILD),
    "INDEX_HEADER_COUNT": ("fault", "the header has another number of entries than the file", REBUILD),
    "INDEX_HEADER_SLOTS": ("fault", "the header has another number of used slots than the file", REBUILD),
    "INDEX_HEADER_OFFSET": ("fault", "the header's first or last physical offset is not that of the entries", REBUILD),
    "INDEX_HEADER_TIME": ("fault", "the header's first or last store time is not that of the records", REBUILD),
    "INDEX_SLOT": ("fault", "a slot does not lead to the newest entry of its bucket", REBUILD),
    "INDEX_SLOT_RANGE": ("fault", "a slot leads to an entry that does not exist", REBUILD),
    "INDEX_LINK": ("fault", "an entry does not lead to the entry before it in its bucket", REBUILD),
    "INDEX_LINK_FORWARD": ("fault", "an entry leads to itself or a later entry: a chain may be a cycle", REBUILD),
    "INDEX_LINK_RANGE": ("fault", "an entry leads to an entry that does not exist", REBUILD),
    "INDEX_ENTRY_HASH": ("fault", "an entry has another hash than the key of its record", REBUILD),
    "INDEX_ENTRY_OFFSET": ("fault", "an entry points to a record other than its own", REBUILD),
    "INDEX_ENTRY_TIME": ("fault", "an entry has a wrong time difference", REBUILD),
    "INDEX_ENTRY_OTHER": ("fault", "no field of an entry is as it should be", REBUILD),
    "INDEX_ENTRY_ORDER": ("fault", "an entry of a deleted record is not in the order of the log", REBUILD),
    "INDEX_ENTRY_MISSING": ("fault", "keys of records have no entry", REBUILD),
    "INDEX_ENTRY_SURPLUS": ("fault", "there is an entry that no key of the log demands", REBUILD),
    "INDEX_ENTRY_PAST_END": ("fault", "an entry points behind the end of the log", REBUILD),
    "INDEX_RUBBISH": ("fault", "bytes in the unused space of an index file", REBUILD),
    "INDEX_ENTRY_DOUBLED": ("note", "keys of a record occur twice, as RocketMQ leaves them after a restart", NOTHING),
    "INDEX_FIRST_TIME": ("note", "RocketMQ counts the time of a file's first entry from the file before", NOTHING),
    "INDEX_RANGE_MISSING": (
        "note",
        "a range of records has no entries: RocketMQ has dropped a file after an unclean stop, or writes no index",
        "run `reput index rebuild` if queries by key matter",
    ),
    "INDEX_BEHIND": ("note", "the index does not have the newest records yet", WAIT),
    "INDEX_FILTER_DAMAGED": ("fault", "a filter of an index file can't be used; its index file is searched", REFILTER),
    "INDEX_FILTER_DENIES": ("fault", "a filter denies keys of its index file, so that look-ups miss them", REFILTER),
    "INDEX_FILTER_UNUSED": (
        "note",
        "a filter belongs to no index file as it is now",
        "nothing: the Indexer removes it or makes it again",
    ),
    "INDEX_ENTRY_UNCHECKED": ("note", "entries point into damaged parts of the log and can't be judged", NOTHING),
}
_FILES: dict[str, tuple[Severity, str, str]] = {
    "ABORT_CONTENT": ("fault", "`abort` has no process id", REPLACE),
    "LOCK_CONTENT": ("fault", "a lock file has other content than `lock`", REPLACE),
    "CHECKPOINT_DAMAGED": ("fault", "the checkpoint has a wrong size, or bytes behind its values", REPLACE),
    "CHECKPOINT_AHEAD": ("fault", "the checkpoint is ahead of the log: its end is lost", RESTORE),
    "TOPICS_DAMAGED": ("fault", "`config/topics.json` can't be read", "restore it from `topics.json.bak` or a backup"),
    "TOPIC_JOURNAL_DAMAGED": (
        "fault",
        "`reput/topic_journal` can't be read: changes of topics from the seconds before a crash",
        "the CommitLog does not start: restore the file from a backup, or remove it and repeat these changes",
    ),
    "TOPIC_JOURNAL_TORN": (
        "note",
        "`reput/topic_journal` ends with a part of a change, as a crash leaves it; no caller was told of that change",
        NOTHING,
    ),
    "TOPIC_UNKNOWN": ("note", "queues or records of a topic that is not among the topics", NOTHING),
    "CONSUMER_OFFSETS_DAMAGED": (
        "fault",
        "`config/consumerOffset.json` can't be read",
        "restore it from `consumerOffset.json.bak` or a backup",
    ),
    "CONSUMER_OFFSET_OUTSIDE": (
        "note",
        "a group is at a queue offset outside of its queue; readers correct it",
        NOTHING,
    ),
    "DELAY_OFFSETS_DAMAGED": (
        "fault",
        "`config/delayOffset.json` can't be read",
        "restore it from `delayOffset.json.bak` or a backup",
    ),
    "DELAY_OFFSET_OUTSIDE": ("note", "delivery of a delay level is at a queue offset outside of its queue", NOTHING),
    "GROUP_CONFIGS_DAMAGED": (
        "fault",
        "`config/subscriptionGroup.json` can't be read",
        "restore it from `subscriptionGroup.json.bak` or a backup",
    ),
    "HISTORY_DAMAGED": ("fault", "`reput/history` can't be read", "remove it: followers then use epochs alone"),
    "REPLICA_DAMAGED": (
        "fault",
        "`reput/replica` can't be read",
        "remove it: the log then uses its settings",
    ),
    "IN_SYNC_DAMAGED": (
        "fault",
        "`reput/in_sync_set` of a leader can't be read",
        "remove it once you know that no other member has more: the log then leads alone until others have caught up",
    ),
    "TOPIC_BEGINS_DAMAGED": (
        "fault",
        "`reput/topic_begins` can't be read",
        "delete the deleted topics once more: until then their messages may be read again",
    ),
    "EPOCHS_DAMAGED": ("fault", "`epochFileCheckpoint` can't be read, or its epochs do not ascend", REPLACE),
    "EPOCH_BEYOND_LOG": ("fault", "an epoch begins behind the end of the log: its end is lost", RESTORE),
    "SNAPSHOT_DAMAGED": ("fault", "`reput/queue_offsets` can't be read", RESCAN),
    "SNAPSHOT_BEYOND_LOG": ("fault", "the log is shorter than it was: its end is lost", RESTORE),
    "SNAPSHOT_COUNTER": ("fault", "`reput/queue_offsets` has a wrong counter", RESCAN),
    "SNAPSHOT_TIMES": ("fault", "`reput/queue_offsets` has wrong times", RESCAN),
    "LOG_HISTORY_DAMAGED": (
        "fault",
        "`reput/log_history` of the Indexer can't be read",
        "nothing: the Indexer makes a new one; a CommitLog that loses its snapshot then waits for an operator",
    ),
    "SHARED_STATE_DAMAGED": (
        "fault",
        "`reput/shared_state` of the Indexer can't be read",
        "nothing: the Indexer reads all records of the shared state anew",
    ),
    "UNSENT_OFFSETS_DAMAGED": (
        "fault",
        "`reput/unsent_offsets` of the Indexer can't be read: consumer offsets that no leader took before a stop",
        "nothing: groups continue at their offsets in the log, and may read some messages again",
    ),
    "PROGRESS_DAMAGED": ("fault", "`reput/index_progress` can't be read", "remove it: all is built again from the log"),
    "PROGRESS_BEYOND_LOG": ("fault", "the Indexer has indexed more than the log has: its end is lost", RESTORE),
    "PROGRESS_EPOCH": ("fault", "the Indexer has followed an epoch that the log does not know", RESTORE),
    "PROGRESS_FILE_GONE": ("fault", "an index file that was finished is gone", REBUILD),
    "CUT_COPY": ("note", "a copy of bytes that recovery cut off the log", "keep it, inspect it, or remove it"),
    "TEMPORARY_FILE": ("note", "a file that was never finished", NOTHING),
}
_STORE: dict[str, tuple[Severity, str, str]] = {
    "LOG_DIFFERS": (
        "fault",
        "the other log has other bytes there; a note if either log was not confirmed there yet",
        "the serving log is right from the offset where the histories differ; check each log by itself",
    ),
    "LOG_NOT_COMPARED": ("note", "only one log of the two has this part", NOTHING),
    "FILE_UNREADABLE": ("fault", "the operating system can't read a file or a part of it", "check the disk"),
    "STORE_NOT_CLEAN": (
        "note",
        "the store was not stopped cleanly, or is a follower",
        "start the CommitLog once, then verify again",
    ),
    "NO_LOG": ("note", "there is no log to compare with", NOTHING),
    "NO_QUEUES": ("note", "there are no queues", NOTHING),
    "NO_INDEX": ("note", "there is no index", NOTHING),
    "NOT_CHECKED": ("note", "a directory of RocketMQ that is not checked", NOTHING),
}

CODES: dict[str, Code] = {
    name: Code(area, *rest)
    for area, table in (
        (Area.LOG, _LOG),
        (Area.QUEUES, _QUEUES),
        (Area.INDEX, _INDEX),
        (Area.FILES, _FILES),
        (None, _STORE),
    )
    for name, rest in table.items()
}
"""All codes in the order of the documentation."""
