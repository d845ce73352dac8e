# SPDX-License-Identifier: Apache-2.0
"""`build`: makes an Indexer with all of its parts, each from those above it. Opens nothing and starts nothing."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from libs.formats import store_layout
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.segments.ballast import Ballast
from services.indexer.config import IndexerConfig
from services.indexer.engine.answer.answers import Answers
from services.indexer.engine.answer.plan import ScanPlanner
from services.indexer.engine.answer.pull import Puller
from services.indexer.engine.answer.query import QueryEngine
from services.indexer.engine.answer.scan import Scanner
from services.indexer.engine.deliver.delay_delivery import LOOK_INTERVAL_MS, DelayDelivery
from services.indexer.engine.deliver.delay_offsets import DelayOffsets
from services.indexer.engine.follow.completeness import Completeness
from services.indexer.engine.follow.deleted_topics import DeletedTopics
from services.indexer.engine.follow.flush import FlushLoop
from services.indexer.engine.follow.history import LogHistory
from services.indexer.engine.follow.indexes import Indexes
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.follow.reput_loop import ReputLoop
from services.indexer.engine.follow.reput_state import Event, ReputStates
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets
from services.indexer.engine.indexer import Files, Follow, Indexer, Upkeep
from services.indexer.engine.log.local_records import LocalRecords
from services.indexer.engine.log.sink import LogSink
from services.indexer.engine.log.source import LogSource, QueueEnd, RecordSource
from services.indexer.engine.tables.index import IndexTable
from services.indexer.engine.tables.progress import ProgressFile, ProgressKeeper
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.engine.upkeep.online_rebuild import OnlineRebuild
from services.indexer.engine.upkeep.queue_removal import QueueRemoval
from services.indexer.engine.upkeep.trim import Trim


def build(
    config: IndexerConfig,
    fs: Fs,
    clock: Clock,
    *,
    source: LogSource,
    records: RecordSource,
    on_failure: Callable[[Exception], None],
    sink: LogSink | None = None,
    delay_look_interval_ms: int = LOOK_INTERVAL_MS,
) -> Indexer:
    """Delayed messages are delivered through the sink; without one they are not."""
    ballast = config.ballast(fs)
    small_files = ballast.roomy_fs()
    history = LogHistory(small_files, config.data_dir / store_layout.LOG_HISTORY)
    progress = ProgressKeeper(ProgressFile(small_files, config.data_dir / store_layout.INDEX_PROGRESS))
    queues, index = _tables(config, fs, clock, spared=ballast.spared, before_removal=history.keep_all)
    if config.commitlog_data_dir is not None:
        records = LocalRecords(
            fs,
            config.commitlog_data_dir,
            records,
            history_id=lambda: history.history_id,
            min_physical_offset=lambda: queues.min_physical_offset,
        )
    polls = LongPolls(config.long_poll_count_max)
    completeness = Completeness()
    states = ReputStates(completeness)
    deleted_topics = DeletedTopics(queues, records, progress)
    indexes = Indexes(queues, index, polls, progress, history, completeness, deleted_topics)

    def fail(error: Exception) -> None:
        states.halt(error, Event.FAILED)
        on_failure(error)

    flush = _flush(config, indexes, completeness, history, progress, ballast, source, clock, on_failure=fail)
    delayed = DelayOffsets(small_files, config.data_dir / store_layout.DELAY_OFFSETS, queues, clock)
    reput = ReputLoop(
        source,
        indexes,
        states,
        completeness,
        history,
        flush,
        history_listeners=() if sink is None else (delayed.change_history,),
        reconnect_ms_max=config.reconnect_ms_max,
    )
    delivery = None
    if sink is not None:
        levels_ms = config.delay_levels_ms()
        delivery = DelayDelivery(
            *(reput, queues, polls, records, sink, delayed, clock),
            look_interval_ms=delay_look_interval_ms,
            delay_levels_ms=levels_ms,
        )
    upkeep = Upkeep(
        Trim(fs, indexes),
        QueueRemoval(reput, indexes, completeness, records, progress, history, flush, source),
        OnlineRebuild(indexes, states, reput, flush, completeness, clock),
    )
    return Indexer(
        Files(fs, config.data_dir, progress, history, ballast),
        indexes=indexes,
        follow=Follow(states, reput, flush, completeness, polls, delivery),
        answers=_answers(config, indexes, records, polls),
        groups=_groups(config, small_files, clock),
        upkeep=upkeep,
        group_interval_ms=config.consumer_offset_interval_ms,
    )


def _tables(
    config: IndexerConfig,
    fs: Fs,
    clock: Clock,
    *,
    spared: Callable[[], AbstractContextManager[None]],
    before_removal: Callable[[Iterator[QueueEnd]], None],
) -> tuple[ConsumeQueueTable, IndexTable]:
    queues = ConsumeQueueTable(
        fs,
        config.data_dir / store_layout.QUEUES,
        file_size_bytes=config.queue_file_size_bytes,
        mapped_file_count_max=config.queue_mapped_file_count_max,
        spared=spared,
        before_removal=before_removal,
    )
    index = IndexTable(
        fs,
        config.data_dir / store_layout.INDEX,
        clock,
        slot_count=config.index_slot_count,
        entry_capacity=config.index_entry_capacity,
    )
    return queues, index


def _answers(config: IndexerConfig, indexes: Indexes, records: RecordSource, polls: LongPolls) -> Answers:
    queues = indexes.queues
    queries = QueryEngine(queues, indexes.index, records, page_size_bytes_max=config.query_size_bytes_max)
    return Answers(
        indexes,
        records,
        queries,
        Puller(queues, records, polls),
        Scanner(queues, records, queries, count_max=config.scan_count_max),
        ScanPlanner(queues, records, partition_key_count=config.scan_partition_key_count),
    )


def _groups(config: IndexerConfig, small_files: Fs, clock: Clock) -> ConsumerOffsets:
    return ConsumerOffsets(
        small_files,
        config.data_dir / store_layout.CONSUMER_OFFSETS,
        clock,
        count_max=config.consumer_offset_count_max,
        expire_s=config.consumer_offset_expire_hours * 3600,
    )


def _flush(
    config: IndexerConfig,
    indexes: Indexes,
    completeness: Completeness,
    history: LogHistory,
    progress: ProgressKeeper,
    ballast: Ballast,
    source: LogSource,
    clock: Clock,
    *,
    on_failure: Callable[[Exception], None],
) -> FlushLoop:
    return FlushLoop(
        *(indexes, completeness, history, progress, ballast, source, clock),
        interval_ms=config.flush_interval_ms,
        page_count_min=config.flush_pages_min,
        thorough_interval_ms=config.flush_thorough_interval_ms,
        on_failure=on_failure,
    )
