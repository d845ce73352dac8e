# SPDX-License-Identifier: Apache-2.0
"""`build`: creates an Indexer with all of its parts, each from the parts above it. Opens nothing, starts nothing."""

from collections.abc import Callable
from functools import partial

from libs.formats import store_layout
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.segments.ballast import Ballast
from services.indexer.config import IndexerConfig
from services.indexer.engine.answer.answers import Answers
from services.indexer.engine.answer.topic_expiry import TopicExpiry
from services.indexer.engine.follow.completeness import Completeness
from services.indexer.engine.follow.flush import FlushLoop
from services.indexer.engine.follow.history import LogHistory
from services.indexer.engine.follow.indexes import Indexes
from services.indexer.engine.follow.live_end import LiveEnd
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.follow.reput_loop import ReputLoop
from services.indexer.engine.follow.reput_state import Event, ReputStates
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets
from services.indexer.engine.groups.delay_offsets import DelayOffsets
from services.indexer.engine.groups.group_configs import GroupConfigs
from services.indexer.engine.groups.timer_wheel import TimerWheel
from services.indexer.engine.indexer import Follow, Indexer, Upkeep
from services.indexer.engine.log.local_records import LocalRecords
from services.indexer.engine.log.source import LogSink, LogSource, NoSink, RecordSource
from services.indexer.engine.measure.topic_measures import TopicMeasures
from services.indexer.engine.share.shared_state import SharedState
from services.indexer.engine.tables.index import IndexTable
from services.indexer.engine.tables.progress import ProgressFile
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.engine.upkeep.filter_loop import FilterLoop
from services.indexer.engine.upkeep.online_rebuild import OnlineRebuild
from services.indexer.engine.upkeep.queue_removal import QueueRemoval
from services.indexer.engine.upkeep.trim import Trim

NO_SINK = NoSink()


def build(
    config: IndexerConfig,
    fs: Fs,
    clock: Clock,
    *,
    source: LogSource,
    records: RecordSource,
    on_failure: Callable[[Exception], None],
    sink: LogSink = NO_SINK,
) -> Indexer:
    """Build an Indexer. Without a sink it shares nothing."""
    ballast = config.ballast(fs)
    small_files = ballast.roomy_fs()
    history = LogHistory(small_files, config.data_dir / store_layout.LOG_HISTORY)
    progress = ProgressFile(small_files, config.data_dir / store_layout.INDEX_PROGRESS)
    queues, index = _tables(config, fs, clock, ballast, history)
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
    live = LiveEnd(clock, polls, silence_ms=config.log_silence_ms, why=lambda: states.why_silent)
    indexes = Indexes(queues, index, polls, progress, history, completeness, records, live)

    def fail(error: Exception) -> None:
        states.halt(error, Event.FAILED)
        on_failure(error)

    groups, group_configs, delay_offsets = _small_state(config, small_files, clock)
    shared_state = SharedState(
        small_files, config.data_dir, indexes, polls, records, groups, delay_offsets, sink,
        interval_ms=config.share_interval_ms, unsent_count_max=config.consumer_offset_count_max,
        skip_below=config.shared_state_skip_below, stage=lambda: states.stage,
    )  # fmt: skip
    flush = FlushLoop(config, indexes, ballast, source, clock, on_failure=fail, on_log_role=shared_state.hear)
    reput = ReputLoop(config, source, indexes, states, flush, live, on_history_change=shared_state.change_history)
    answers = Answers(config, indexes, records, polls, live)
    measured = config.metrics_topic_count_max
    return Indexer(
        fs,
        config,
        ballast,
        indexes=indexes,
        follow=Follow(states, reput, flush, completeness, polls, live, shared_state),
        answers=answers,
        groups=groups,
        delay_offsets=delay_offsets,
        upkeep=Upkeep(
            Trim(fs, indexes),
            QueueRemoval(reput, indexes, records, flush),
            OnlineRebuild(indexes, states, reput, flush, clock),
            group_configs,
            TimerWheel(small_files, config.data_dir, clock),
            FilterLoop(index, interval_ms=config.flush_interval_ms),
            TopicMeasures(queues, groups, records, answers.pulled, clock, topic_count_max=measured),
            TopicExpiry(queues, records),
        ),
    )


def _small_state(
    config: IndexerConfig, small_files: Fs, clock: Clock
) -> tuple[ConsumerOffsets, GroupConfigs, DelayOffsets]:
    groups = ConsumerOffsets(
        small_files,
        config.data_dir / store_layout.CONSUMER_OFFSETS,
        clock,
        count_max=config.consumer_offset_count_max,
        expire_s=config.consumer_offset_expire_hours * 3600,
    )
    path = config.data_dir / store_layout.GROUP_CONFIGS
    configs = GroupConfigs(small_files, path, clock, count_max=config.consumer_offset_count_max)
    return groups, configs, DelayOffsets(small_files, config.data_dir / store_layout.DELAY_OFFSETS, groups, clock)


def _tables(
    config: IndexerConfig, fs: Fs, clock: Clock, ballast: Ballast, history: LogHistory
) -> tuple[ConsumeQueueTable, IndexTable]:
    queues = ConsumeQueueTable(
        fs,
        config.data_dir / store_layout.QUEUES,
        file_size_bytes=config.queue_file_size_bytes,
        mapped_file_count_max=config.queue_mapped_file_count_max,
        spared=ballast.spared,
        before_removal=partial(history.keep, are_all=True),
    )
    index = IndexTable(
        fs,
        config.data_dir / store_layout.INDEX,
        clock,
        slot_count=config.index_slot_count,
        entry_capacity=config.index_entry_capacity,
    )
    return queues, index
