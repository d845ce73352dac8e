# SPDX-License-Identifier: Apache-2.0
"""The Indexer's composition: settings, the CommitLog's channel, engine, servicers and server.

Calls are accepted when its own files are recovered. While the CommitLog can't be reached, calls that need no records
are answered, other calls fail with DEPENDENCY_UNAVAILABLE, and GetStatus returns CONNECTING. The service is healthy
once it has reached the CommitLog, and stays healthy when the CommitLog becomes unavailable again.
"""

import asyncio
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from google.protobuf.descriptor import ServiceDescriptor
from reput.indexer.v1 import (
    consumer_offset_service_pb2,
    group_config_service_pb2,
    index_service_pb2,
    query_service_pb2,
    queue_service_pb2,
    rebuild_service_pb2,
    scan_service_pb2,
)

from libs.log.state import data_dir
from libs.machine import memory
from libs.runtime.process import Shell
from libs.runtime.rpc.server import GrpcServer
from libs.runtime.settings import PeerConfig, ServerConfig, TelemetryConfig
from services.indexer.config import IndexerConfig
from services.indexer.engine.build import build
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.measure.topic_measures import OffsetLag, TopicMessages
from services.indexer.engine.statistics import statistics
from services.indexer.rpc.consumer_offset_servicer import ConsumerOffsetServicer
from services.indexer.rpc.error_table import ERROR_TABLE
from services.indexer.rpc.group_config_servicer import GroupConfigServicer
from services.indexer.rpc.index_servicer import IndexServicer
from services.indexer.rpc.limits import LIMITS, REQUEST_SIZE_BYTES_MAX
from services.indexer.rpc.log.appender import LogAppender
from services.indexer.rpc.log.record_source import LogRecords
from services.indexer.rpc.log.tail import LogTail
from services.indexer.rpc.needs import around
from services.indexer.rpc.query_servicer import QueryServicer
from services.indexer.rpc.queue_servicer import QueueServicer
from services.indexer.rpc.rebuild_servicer import RebuildServicer
from services.indexer.rpc.scan_servicer import ScanServicer

AT_ONCE = frozenset({"Pull", "QueryByKey", "QueryByTime", "QueryById"})
"""Methods that answer without a wait if the records are in memory."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of the Indexer process."""

    engine: IndexerConfig = field(default_factory=IndexerConfig)
    commitlog: PeerConfig = field(default_factory=lambda: PeerConfig(target="127.0.0.1:7101", timeout_ms=5_000))
    server: ServerConfig = field(default_factory=lambda: ServerConfig(port=7102))
    telemetry: TelemetryConfig = field(default_factory=lambda: TelemetryConfig(metrics_port=7202))


def fitted(config: IndexerConfig) -> IndexerConfig:
    """Return the settings with mapped files limited to three quarters of the kernel's limit of maps per process."""
    count_max = max(1, memory.mapping_count_max() * 3 // 4)
    return replace(config, queue_mapped_file_count_max=min(count_max, config.queue_mapped_file_count_max))


class Service:
    """The Indexer as the process shell runs it."""

    live = ("long_poll_count_max", "scan_count_max", "stream_count_max")

    def __init__(self, settings: Settings, shell: Shell) -> None:
        config, fs, clock = fitted(settings.engine), shell.machine.fs, shell.machine.clock
        connect = shell.peer("commitlog", settings.commitlog, settings.server, reconnect_ms_max=config.reconnect_ms_max)
        self._check_store = functools.partial(data_dir.check, fs, config.data_dir, may_create=config.create_store)
        self._log = connect(settings.commitlog.target)
        self._appender = LogAppender(self._log, connect)
        source = LogTail(self._log, record_count_max=config.dispatch_record_count_max)
        self.indexer = build(
            config,
            fs,
            clock,
            source=source,
            records=LogRecords(self._log),
            on_failure=shell.fail,
            sink=self._appender,
        )
        history = self.indexer.indexes.history
        source.history_id = lambda: history.history_id
        shell.telemetry.observe("index", functools.partial(statistics, self.indexer))
        measures = self.indexer.upkeep.measures
        shell.telemetry.observe("measured", lambda: measures.left_out)
        shell.telemetry.observe_each("topic", ("topic",), lambda: measures.topics, TopicMessages)
        shell.telemetry.observe_each("group", ("group", "topic"), lambda: measures.lags, OffsetLag)
        self.server = GrpcServer(
            settings.server,
            errors=ERROR_TABLE,
            telemetry=shell.telemetry,
            request_size_bytes_max=REQUEST_SIZE_BYTES_MAX,
            limits=LIMITS,
        )
        self.queues = QueueServicer(self.indexer.answers, stream_count_max=config.stream_count_max)
        for service, servicer in _servicers(self.indexer, self.queues, clock.now_ms()):
            needs = around(service, self.indexer.follow.completeness)
            offered = AT_ONCE & {method.name for method in service.methods}
            self.server.add_service(service, servicer, around=needs, at_once=offered)

    def reload(self, settings: Settings) -> None:
        """Take the live settings."""
        config = settings.engine
        self.indexer.follow.polls.count_max = config.long_poll_count_max
        self.indexer.answers.scanner.count_max = config.scan_count_max
        self.queues.stream_count_max = config.stream_count_max

    async def open(self) -> None:
        """Recover the files and begin to follow the log."""
        await asyncio.to_thread(self._check_store)
        await asyncio.to_thread(self.indexer.open)
        self.indexer.start()

    async def until_connected(self) -> None:
        """Wait until the log has answered."""
        await self.indexer.follow.states.heard.wait()

    async def until_complete(self) -> None:
        """Wait until the indexes hold all records that were ever answered from them, or an operator must decide."""
        await self.indexer.follow.completeness.changed.wait()

    async def drain(self) -> None:
        """End waiting pulls and streams."""
        self.indexer.drain()

    async def close(self) -> None:
        """Make everything durable and close the connection to the CommitLog."""
        try:
            await self.indexer.close()
        finally:
            await self._appender.close()
            await self._log.channel.close()


def _servicers(
    indexer: Indexer, queues: QueueServicer, start_time_ms: int
) -> Iterator[tuple[ServiceDescriptor, object]]:
    """Yield each service of the protos, with its servicer."""
    follow, answers = indexer.follow, indexer.answers
    for module, servicer in (
        (queue_service_pb2, queues),
        (query_service_pb2, QueryServicer(answers)),
        (scan_service_pb2, ScanServicer(answers, follow.polls)),
        (
            consumer_offset_service_pb2,
            ConsumerOffsetServicer(indexer.groups, answers, follow, indexer.upkeep.timer_wheel),
        ),
        (group_config_service_pb2, GroupConfigServicer(indexer.upkeep.group_configs)),
        (index_service_pb2, IndexServicer(indexer, start_time_ms=start_time_ms)),
        (rebuild_service_pb2, RebuildServicer(indexer.upkeep.rebuild, follow.polls)),
    ):
        yield from ((service, servicer) for service in module.DESCRIPTOR.services_by_name.values())
