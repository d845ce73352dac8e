# SPDX-License-Identifier: Apache-2.0
"""IndexerConfig: every setting of the Indexer, with its unit and RocketMQ's default where RocketMQ has the setting.

Values only. Bounds are checked when the configuration is loaded; relations between fields on construction.
The addresses and the telemetry of the service are in the process shell's settings.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from libs.formats import limits, store_layout
from libs.formats.errors import FormatError
from libs.formats.indexes import index_file
from libs.formats.indexes.consume_queue import FILE_SIZE_BYTES, UNIT_SIZE_BYTES
from libs.formats.records.delay_level import DELAY_LEVELS_TEXT, parse_levels
from libs.importance import Advanced, Basic
from libs.machine.fs import Fs
from libs.segments.ballast import Ballast
from libs.segments.segment import GROWTH_BYTES_MAX

Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexerConfig:
    """Settings of the Indexer service. Sizes are in bytes, times in milliseconds."""

    data_dir: Basic[Path] = Path("reput-data")
    """Directory of the store, in RocketMQ's layout; may be the CommitLog's own.

    Made when it is missing, if create_store allows it.
    """

    create_store: Advanced[bool] = True
    """Whether a start may make a store in a data_dir that is missing or empty.

    Set it to false once the store is there: a start without its disk is refused then, and no new store takes its place.
    """

    commitlog_data_dir: Basic[Path | None] = None
    """Data directory of the CommitLog, if this process can read it. Records are then read from its files, and the
    CommitLog is asked only for records that are not certain there. Files of another log are detected and not read."""

    queue_file_size_bytes: Advanced[Annotated[int, Meta(ge=UNIT_SIZE_BYTES, le=limits.INT32_MAX)]] = FILE_SIZE_BYTES
    """Size of a consume queue file, a multiple of 20. Can't be changed on existing data."""

    queue_mapped_file_count_max: Advanced[Positive] = 49_152
    """Consume queue files that are mapped at once. The number in force is at most three quarters of vm.max_map_count.
    When 7/8 of them have unsynced units, the units of further queues stay in memory (64 MiB) until the next sync."""

    index_slot_count: Advanced[Annotated[int, Meta(ge=1, le=limits.INT32_MAX)]] = limits.INDEX_SLOT_COUNT
    """Hash slots of an index file. Can't be changed on existing data."""

    index_entry_capacity: Advanced[Annotated[int, Meta(ge=2, le=limits.INT32_MAX)]] = limits.INDEX_ENTRY_CAPACITY
    """Places for entries in an index file, of which the first is never used. Can't be changed on existing data."""

    flush_interval_ms: Advanced[Positive] = 1_000
    """Time between two runs of the flush loop over the consume queues; progress is reported as often."""

    flush_pages_min: Advanced[NotNegative] = 2
    """A queue with fewer dirty pages of 4 KiB than this is left for the thorough flush."""

    flush_thorough_interval_ms: Advanced[Positive] = 60_000
    """After this time all dirty files are synced, index files too, and the progress file is written."""

    disk_ballast_bytes: Advanced[NotNegative] = 16 * limits.MIB
    """Size of a file that makes room for the small files when the disk has no room for them; 0 is no such file."""

    message_delay_level: Advanced[str] = DELAY_LEVELS_TEXT
    """The CommitLog's setting of this name. Used only when indexes are built from the log's files alone."""

    consumer_offset_interval_ms: Advanced[Positive] = 5_000
    """Time between two checks whether consumerOffset.json must be written."""

    metrics_topic_count_max: Advanced[NotNegative] = 1_000
    """Topics with metrics of their own, and of their groups: the first ones by name; 0 measures none."""

    consumer_offset_count_max: Advanced[Positive] = 1_000_000
    """Most (group, topic, queue) offsets that are kept. Each takes 60 to 300 bytes of memory, and its place in the
    file."""

    consumer_offset_expire_hours: Basic[NotNegative] = 0
    """A group whose offsets are neither committed nor asked for during this time is removed; 0 is never. The time
    begins at the start of the Indexer at the earliest. A consumer that waits at a silent topic commits nothing, and
    begins anew when its group is removed: choose a time much longer than topics are silent."""

    share_interval_ms: Advanced[Positive] = 1_000
    """Time between two checks whether changes of consumer offsets must be appended to the log, for the Indexers of its
    copies and for restores. The changes of this time are lost with an Indexer's machine."""

    shared_state_skip_below: Advanced[NotNegative] = 0
    """Records of rmq_sys_reput_state below this queue offset that this version can't read are skipped, and the consumer
    offsets in them are lost. Without it, calls about consumer offsets are refused."""

    dispatch_record_count_max: Advanced[Annotated[int, Meta(ge=1, le=32_768)]] = 8_192
    """Most records in a step of the stream that feeds the indexes."""

    reconnect_ms_max: Advanced[Positive] = 5_000
    """Longest wait between two attempts to reach the CommitLog."""

    log_silence_ms: Advanced[NotNegative] = 10_000
    """When nothing was received from the CommitLog for so long, calls that wait for new messages or records are refused
    with DEPENDENCY_UNAVAILABLE, so that clients with several addresses continue at another Indexer. A healthy CommitLog
    sends a step every second. 0 lets the calls wait for ever."""

    long_poll_count_max: Advanced[Positive] = 5_000
    """Pulls and subscriptions that may wait for messages at once, and as many calls that wait for a record to be
    indexed. Beyond this number they are refused with WINDOW_FULL; each takes about 25 KB while it waits, and gRPC keeps
    8 KB of that."""

    query_size_bytes_max: Advanced[Annotated[int, Meta(ge=limits.KIB, le=64 * limits.MIB)]] = 2 * limits.MIB
    """Bytes of records in a page of a query; the first message always fits."""

    scan_count_max: Advanced[Positive] = 64
    """Scans that may run at once; each reads at most two chunks ahead."""

    scan_partition_key_count: Advanced[Annotated[int, Meta(ge=1, le=10_000)]] = 1_000
    """Keys of a partition of a plan for keys."""

    stream_count_max: Advanced[Positive] = 1_024
    """Subscriptions that may be open at once."""

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        if self.queue_file_size_bytes % UNIT_SIZE_BYTES:
            raise ValueError("queue_file_size_bytes must be a multiple of 20")
        try:
            self.delay_levels_ms()
        except FormatError as error:
            raise ValueError(f"message_delay_level: {error.reason}") from None

    def ballast(self, fs: Fs) -> Ballast:
        """Return the ballast file. It reserves room for another index file and a growth step of a queue's file."""
        index_file_size_bytes = index_file.file_size_bytes(self.index_slot_count, self.index_entry_capacity)
        return Ballast(
            fs,
            self.data_dir / store_layout.INDEX_BALLAST,
            size_bytes=self.disk_ballast_bytes,
            reserve_bytes=min(self.queue_file_size_bytes, GROWTH_BYTES_MAX) + index_file_size_bytes,
        )

    def delay_levels_ms(self) -> tuple[int, ...]:
        """Return the delays of the levels in milliseconds, level 1 first."""
        return parse_levels(self.message_delay_level)
