# SPDX-License-Identifier: Apache-2.0
"""CommitLogConfig: every setting of the log itself, with its unit. Defaults are RocketMQ's if it has the setting.

Values only. Addresses, TLS, tokens and telemetry belong to the process and are not here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, cast

from msgspec import Meta

from libs.formats import limits, store_layout
from libs.formats.errors import FormatError
from libs.formats.records.delay_level import DELAY_LEVELS_TEXT, parse_levels
from libs.formats.records.host import Host
from libs.formats.state.replication import ROLE_ALIASES, RoleName, RoleWord
from libs.importance import Advanced, Basic
from libs.log.state.directories import real
from libs.machine.fs import PAGE_SIZE_BYTES, Fs
from libs.segments.ballast import Ballast
from libs.segments.directories import SegmentDirectories

Percent = Annotated[int, Meta(ge=1, le=100)]
LEASE_DURATION_MS_MAX = 600_000
"""Also the longest time for which a leader may ask its followers to stay away from elections."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitLogConfig:
    """Settings of the log. Sizes are in bytes, times in milliseconds."""

    data_dir: Basic[Path] = Path("reput-data")
    """Directory of the store, in RocketMQ's layout. Made when it is missing, if create_store allows it."""

    create_store: Advanced[bool] = True
    """Whether a start may make a store in a data_dir that is missing or empty.

    Set it to false once the store is there: a start without its disk is refused then, and no new store takes its place.
    """

    log_dirs: Advanced[str] = ""
    """Directories of the segments, separated by commas, for a log on several disks; empty is data_dir/commitlog.

    RocketMQ's storePathCommitLog. Relative paths begin at the working directory. Give directories below the mount
    points: then a disk that is not mounted is detected.
    """

    log_dirs_read_only: Advanced[str] = ""
    """Directories with segments that are read until they expire; no new segments are made there.

    RocketMQ's readOnlyCommitLogStorePaths.
    """

    role: Basic[RoleWord] = "async_master"
    """A leader accepts appends. A synchronous leader shows readers only records that all members of the in-sync set
    have on their disks, and an append waits for that unless its request asks for less. A follower follows the log of
    leader_target, and refuses appends. async_leader, sync_leader and follower are other names for async_master,
    sync_master and slave, the values of RocketMQ's brokerRole."""

    replica_id: Basic[str] = ""
    """Name of this log among its copies; empty is the host's name and the port."""

    coordinator: Basic[Literal["none", "etcd", "kubernetes"]] = "none"
    """Keeper of the record that names the leader. none: operators choose the leader. etcd, kubernetes: the logs elect
    the leader by themselves, all with the same etcd_targets and etcd_prefix, or kubernetes_lease and
    kubernetes_namespace; role is then the role in which an elected log leads."""

    bootstrap_replica_id: Basic[str] = ""
    """With a coordinator: replica_id of the log that makes the record when there is none, and leads first. Give all
    logs the same value. The log does so only if it never was replicated before."""

    advertise_target: Basic[str] = ""
    """With a coordinator: address under which other logs and clients reach this log, as host:port; empty is the address
    that it listens on."""

    lease_duration_ms: Advanced[Annotated[int, Meta(ge=1_000, le=LEASE_DURATION_MS_MAX)]] = 5_000
    """With a coordinator: a leader that could not renew its lease for so long is replaced. It accepts no appends after
    four fifths of this time, unless it reaches all other members in sync. Must be the same at all logs of a group: a
    log that was just started waits for this time."""

    lease_renew_ms: Advanced[Annotated[int, Meta(ge=100)]] = 1_500
    """With a coordinator: time between two renewals of the lease."""

    min_in_sync_replicas: Basic[Annotated[int, Meta(ge=1, le=16)]] = 2
    """Least members of the in-sync set, leader included, for REPLICATED: with fewer members an append that asks for it
    is refused with NOT_ENOUGH_REPLICAS. The set never gets smaller after it was so large. RocketMQ's
    minInSyncReplicas."""

    replica_lag_ms_max: Advanced[Annotated[int, Meta(ge=1_000)]] = 10_000
    """A member leaves the in-sync set if it did not reach the end of the log of so long ago, or is not connected."""

    replica_lag_bytes_max: Advanced[Annotated[int, Meta(ge=limits.MIB)]] = 256 * limits.MIB
    """A member that is further behind leaves the in-sync set."""

    replicate_timeout_ms: Advanced[Annotated[int, Meta(ge=1)]] = 3_000
    """Longest wait for the other members; then the answer has the durability of the batch, which is stored."""

    handover_timeout_ms: Advanced[Annotated[int, Meta(ge=1)]] = 2_000
    """Longest time for which a leader accepts no appends during a handover. After this time it continues to lead,
    unless the next leader has all records. The handover waits as long for the other members in sync, so a member that
    does not answer makes a handover take this time."""

    replica_window_bytes: Advanced[Annotated[int, Meta(ge=limits.MIB, le=256 * limits.MIB)]] = 16 * limits.MIB
    """Bytes that a follower's leader may send ahead of the received bytes."""

    catch_up_bytes_per_s: Advanced[Annotated[int, Meta(ge=0)]] = 0
    """Bytes per second that a leader sends to all followers together of records from before their streams began, or
    far behind the end of the log. 0 is no limit. A follower never catches up with appends at a higher rate."""

    replica_silence_ms: Advanced[Annotated[int, Meta(ge=1_000)]] = 3_000
    """A stream of replication that brings nothing for so long is closed. Both sides send a step twice a second."""

    cut_bytes_max: Advanced[Annotated[int, Meta(ge=0)]] = limits.GIB
    """A follower that has bytes which its newer leader does not have truncates at most so many of them, and keeps a
    copy below reput/cut; with more bytes it stops following."""

    reconnect_ms_max: Advanced[Annotated[int, Meta(ge=1)]] = 2_000
    """Longest wait of a follower between two attempts to reach its leader."""

    store_host: Advanced[str] = ""
    """Address written into records and message ids, as address:port; empty is the address that it listens on."""

    segment_size_bytes: Advanced[Annotated[int, Meta(ge=64 * limits.KIB, le=limits.SEGMENT_SIZE_BYTES_MAX)]] = (
        limits.SEGMENT_SIZE_BYTES
    )
    """Size of a file of the log. Can't be changed on existing data."""

    preallocate: Advanced[bool] = True
    """Make the next segment ahead of need, in the background."""

    flush_mode: Basic[Literal["async", "sync"]] = "sync"
    """sync acknowledges after the sync; async acknowledges from memory and syncs in the background.

    RocketMQ's flushDiskType, whose default is async.
    """

    flush_interval_ms: Advanced[Annotated[int, Meta(ge=1)]] = 500
    """Time between two runs of the background flush."""

    flush_pages_min: Advanced[Annotated[int, Meta(ge=0)]] = 4
    """The background flush leaves fewer dirty pages of 4 KiB than this for later."""

    flush_thorough_interval_ms: Advanced[Annotated[int, Meta(ge=1)]] = 10_000
    """After this time the background flush syncs all dirty pages."""

    transient_store_pool: Advanced[bool] = False
    """Collect appends in locked memory and copy them to the files in the background; flush_mode must be async."""

    transient_store_pool_segment_count: Advanced[Annotated[int, Meta(ge=1, le=64)]] = 5
    """Buffers of the pool, of a segment each, taken and locked at the start."""

    commit_interval_ms: Advanced[Annotated[int, Meta(ge=1)]] = 200
    """Time between two checks whether the pool has bytes to copy to the files."""

    commit_pages_min: Advanced[Annotated[int, Meta(ge=0)]] = 4
    """The copying leaves fewer pages of 4 KiB than this for later."""

    commit_thorough_interval_ms: Advanced[Annotated[int, Meta(ge=1)]] = 200
    """After this time the whole content of the pool is copied."""

    warm_segments: Advanced[bool] = False
    """Make the pages of the next segment present and lock them in memory, in the background."""

    sync_timeout_ms: Advanced[Annotated[int, Meta(ge=1)]] = 5_000
    """Longest wait of an append for its sync; then the answer has the lower durability."""

    checkpoint_interval_ms: Advanced[Annotated[int, Meta(ge=1)]] = 1_000
    """Time between two checks whether the checkpoint file must be written."""

    snapshot_interval_ms: Advanced[Annotated[int, Meta(ge=1)]] = 60_000
    """Time between two snapshots of the queue offsets, which each roll and each clean stop make too."""

    message_size_bytes_max: Basic[Annotated[int, Meta(ge=1, le=limits.GIB)]] = limits.BODY_SIZE_BYTES_MAX
    """Largest body of a message."""

    append_request_size_bytes_max: Advanced[Annotated[int, Meta(ge=limits.KIB, le=limits.GIB)]] = (
        limits.APPEND_REQUEST_SIZE_BYTES_MAX
    )
    """Largest serialized batch."""

    append_inflight_bytes_max: Basic[Annotated[int, Meta(ge=limits.KIB, le=limits.GIB)]] = 256 * limits.MIB
    """Bytes of batches that may wait for their durability, over all callers."""

    append_stream_inflight_bytes_max: Advanced[Annotated[int, Meta(ge=limits.KIB, le=limits.GIB)]] = 64 * limits.MIB
    """Bytes of batches of an AppendStream whose outcomes are not yet sent; the stream is not read meanwhile."""

    auto_create_topics: Basic[bool] = True
    """Make a topic when the first message for it arrives. Topics of groups' dead letters are made in any case."""

    default_queue_count: Advanced[Annotated[int, Meta(ge=1, le=limits.QUEUE_COUNT_MAX)]] = 4
    """Queues of a topic when the request names no count."""

    topic_count_max: Advanced[Annotated[int, Meta(ge=1)]] = 100_000
    """Most topics in the store."""

    topic_queue_count_max: Advanced[Annotated[int, Meta(ge=1, le=limits.QUEUE_COUNT_MAX)]] = 1_024
    """Most queues that a topic can be given. A topic that has more keeps them."""

    queue_count_max: Advanced[Annotated[int, Meta(ge=1)]] = 100_000
    """Most queues of all topics together; of a deleted topic the queues that had a message count. Topics that would
    exceed it are refused. Each queue takes some 10 KB of the Indexer's disk and as much of its memory from its first
    message on."""

    batch_new_queue_count_max: Advanced[Annotated[int, Meta(ge=1)]] = 1_024
    """Most queues whose first messages a batch may have."""

    new_queues_per_s_max: Advanced[Annotated[int, Meta(ge=0)]] = 500
    """Queues that may begin per second, over all callers. Beyond it a batch with first messages of queues is refused
    with WINDOW_FULL, and may be sent again; other batches are accepted. An Indexer makes the files of each new queue
    before it continues in the log, so this bounds how long new queues delay messages of all other queues. 0 is no
    limit."""

    message_delay_level: Advanced[str] = DELAY_LEVELS_TEXT
    """Delays of level 1, 2, ... in RocketMQ's form. A higher level of a message becomes the last level. The delay of a
    waiting message is Delivery's setting of this name."""

    writer_batch_count_max: Advanced[Annotated[int, Meta(ge=1, le=1_000_000)]] = 16_384
    """Batches with a writer that the log remembers, so that they are stored once however often they are sent."""

    writer_count_max: Advanced[Annotated[int, Meta(ge=1, le=1_000_000)]] = 65_536
    """Writers whose next number the log remembers, also when it does not remember their batches: a batch that is sent
    again then is refused as forgotten. A first batch that is sent again after so many other writers is stored a second
    time."""

    once_count_max: Advanced[Annotated[int, Meta(ge=1, le=1_000_000)]] = 32_768
    """Writers of a single batch (ids that begin with `once/`) that the log remembers, so that a batch that is sent
    again with the same id is stored once."""

    crc_property: Advanced[bool] = True
    """Write the whole-record checksum as a last property of each record, as RocketMQ can since 5.2."""

    accept_scanned_queue_offsets: Advanced[bool] = False
    """At a start without a snapshot of the queue offsets: use the remaining log's offsets, and wait for no Indexer."""

    check_crc_on_recover: Advanced[bool] = True
    """Check the checksums of the records that a start scans."""

    clock_step_ms_max: Advanced[Annotated[int, Meta(ge=0)]] = limits.CLOCK_STEP_MS_MAX
    """A record whose store time is older than its predecessor's by more than this is left over from an older log."""

    store_time_ahead_ms_max: Advanced[Annotated[int, Meta(ge=0)]] = 10_000
    """The log warns while the store time of its last record is further ahead of the clock."""

    disk_reserve_bytes: Advanced[Annotated[int, Meta(ge=0)]] = 64 * limits.MIB
    """Appends are refused while the disk of data_dir, or each disk of the log, has less free space than this."""

    disk_full_percent: Basic[Percent] = 90
    """Appends are refused while more than this part of the log's disk is used; 100 is never.

    Of several disks that take new segments, the emptiest counts. RocketMQ's diskSpaceWarningLevelRatio.
    """

    disk_open_percent: Advanced[Percent] = 85
    """Appends that were refused for disk_full_percent are accepted again when not more than this part is used.

    Of several disks of the log, a disk that is used above it gets no new segments as long as there is another disk.
    RocketMQ's diskSpaceCleanForciblyRatio.
    """

    disk_report_timeout_ms: Advanced[Annotated[int, Meta(ge=1)]] = 60_000
    """Time for which the Janitor's report of a full disk is valid; the Janitor reports again at each of its checks."""

    segment_release_timeout_ms: Advanced[Annotated[int, Meta(ge=0)]] = 120_000
    """The deletion of a segment waits so long for its readers; then their streams end with OFFSET_TRIMMED.

    RocketMQ's destroyMapedFileIntervalForcibly."""

    disk_ballast_bytes: Advanced[Annotated[int, Meta(ge=0)]] = 16 * limits.MIB
    """Size of a file that makes room for starts, stops and deletions on a full disk; 0 is no such file."""

    disk_interval_ms: Advanced[Annotated[int, Meta(ge=1)]] = 1_000
    """Time between two checks of the free space."""

    dispatch_interval_ms: Advanced[Annotated[int, Meta(ge=0)]] = 3
    """Least time between two steps of a follower's stream. The first step after a pause is sent at once."""

    dispatch_size_bytes_min: Advanced[Annotated[int, Meta(ge=0)]] = 256 * limits.KIB
    """New bytes for which a follower's stream does not wait."""

    dispatch_heartbeat_ms: Advanced[Annotated[int, Meta(ge=1)]] = 1_000
    """Time between two heartbeats of an idle follower's stream."""

    stream_count_max: Advanced[Annotated[int, Meta(ge=1)]] = 1_024
    """Streams of clients that may be open at once, AppendStream and StreamRecords."""

    service_stream_count_max: Advanced[Annotated[int, Meta(ge=1)]] = 64
    """Streams of other services that may be open at once: a follower's stream for each Indexer, and the comparisons of
    Indexers. Streams of clients never take their place."""

    append_stream_idle_timeout_ms: Advanced[Annotated[int, Meta(ge=0)]] = 600_000
    """An AppendStream that brings no batch for so long ends with STREAM_IDLE, after its outcomes are sent: forgotten
    streams do not keep other producers out, and a producer opens another stream with its next batch. 0 is never."""

    def __post_init__(self) -> None:
        if self.segment_size_bytes % PAGE_SIZE_BYTES:
            raise ValueError(f"segment_size_bytes must be a multiple of {PAGE_SIZE_BYTES}")
        if self.append_stream_inflight_bytes_max < self.append_request_size_bytes_max:
            raise ValueError("append_stream_inflight_bytes_max must not be below append_request_size_bytes_max")
        if self.append_inflight_bytes_max < self.append_request_size_bytes_max:
            raise ValueError("append_inflight_bytes_max must not be below append_request_size_bytes_max")
        if self.default_queue_count > self.topic_queue_count_max:
            raise ValueError("default_queue_count must not be above topic_queue_count_max")
        if self.lease_renew_ms * 2 > self.lease_duration_ms:
            raise ValueError("lease_renew_ms must not be above half of lease_duration_ms")
        if self.disk_open_percent > self.disk_full_percent:
            percents = f"disk_open_percent is {self.disk_open_percent}, disk_full_percent is {self.disk_full_percent}"
            raise ValueError(f"{percents}: the first must not be above the second")
        self._check_directories()
        try:
            self.delay_levels_ms()
        except FormatError as error:
            raise ValueError(f"message_delay_level: {error.reason}") from None
        if self.warm_segments and not self.preallocate:
            raise ValueError("warm_segments needs preallocate: a segment is warmed while it waits for its turn")
        if self.transient_store_pool and self.flush_mode == "sync":
            raise ValueError(
                "transient_store_pool needs flush_mode async: sync waits for the disk at each append anyway"
            )
        if self.store_host:
            try:
                Host.parse(self.store_host)
            except FormatError as error:
                raise ValueError(f"store_host: {error.reason}") from None

    @property
    def role_name(self) -> RoleName:
        """The role by RocketMQ's name."""
        return ROLE_ALIASES.get(self.role) or cast("RoleName", self.role)

    @property
    def is_follower(self) -> bool:
        """Whether the log is a follower, a copy of another log that accepts no appends."""
        return self.role_name == "slave"

    @property
    def has_pool(self) -> bool:
        """Whether appends are collected in a pool. A follower writes received bytes to its files at once."""
        return self.transient_store_pool and not self.is_follower

    def delay_levels_ms(self) -> tuple[int, ...]:
        """Return the delays of the levels in milliseconds, level 1 first."""
        return parse_levels(self.message_delay_level)

    def _check_directories(self) -> None:
        paths = [real(path) for path in self.segment_directories().all]
        for index, path in enumerate(paths):
            if path in paths[:index]:
                raise ValueError(f"log_dirs (empty: data_dir/commitlog) and log_dirs_read_only name {path} twice")
            if any(
                other != path and other.is_relative_to(path)
                for other in (*paths, real(self.data_dir) / store_layout.CONFIG)
            ):
                raise ValueError(
                    f"log_dirs and log_dirs_read_only name {path}, which has data_dir or another one in it"
                )
            try:
                str(path).encode()
            except UnicodeEncodeError:
                raise ValueError(f"log_dirs or log_dirs_read_only: {str(path)!a} is not UTF-8") from None

    def segment_directories(self) -> SegmentDirectories:
        """Return the directories of the segments."""
        writable = _directories(self.log_dirs, "log_dirs") or [self.data_dir / store_layout.COMMIT_LOG]
        return SegmentDirectories(writable, _directories(self.log_dirs_read_only, "log_dirs_read_only"))

    def ballast(self, fs: Fs) -> Ballast:
        """Return the ballast file."""
        return Ballast(
            fs,
            self.data_dir / store_layout.BALLAST,
            size_bytes=self.disk_ballast_bytes,
            reserve_bytes=self.disk_reserve_bytes,
        )


def _directories(text: str, name: str) -> list[Path]:
    """Return the paths of a setting. Raises ValueError for an empty path between others."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(parts):
        raise ValueError(f"{name} is {text!r}: a directory is missing beside a comma")
    return [real(Path(part)) for part in parts]
