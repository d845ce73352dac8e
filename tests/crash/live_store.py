# SPDX-License-Identifier: Apache-2.0
"""LiveStore: a data directory and the services that run on it as processes, with small files and short intervals.

Small files and short intervals make a second of load pass every place where durability changes hands. The sizes stay
for the life of a store; the mode and the armed failpoints may differ with each start.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
from reput.commitlog.v1 import append_service_pb2_grpc, log_service_pb2_grpc
from reput.delivery.v1 import delay_service_pb2_grpc
from reput.indexer.v1 import (
    consumer_offset_service_pb2_grpc,
    index_service_pb2_grpc,
    query_service_pb2_grpc,
    queue_service_pb2_grpc,
)
from reput.janitor.v1 import retention_service_pb2_grpc

from libs.formats.indexes.consume_queue import UNIT_SIZE_BYTES
from libs.formats.limits import KIB
from services.indexer.config import IndexerConfig
from tests.crash.nursery import Child, Nursery
from tests.support.trusted import trusted

BUG_MARKS = ('"exception"', "Traceback", '"level": "critical"')
"""Texts that a service writes to its log only because of a bug, or because its files contradict the log."""
FLUSH_MODES: Mapping[str, tuple[str, ...]] = {
    "async": ("--flush-mode", "async"),
    "sync": ("--flush-mode", "sync"),
    "pool": (
        *("--flush-mode", "async", "--transient-store-pool", "true", "--transient-store-pool-segment-count", "3"),
        *("--commit-interval-ms", "15", "--commit-pages-min", "2", "--commit-thorough-interval-ms", "60"),
    ),
}
"""Flags of the CommitLog for each way to flush."""

DELAY_LEVELS_TEXT = "0s 1s"
HASTY = ("--reconnect-ms-max", "50", "--drain-timeout-ms", "1000")
WITHOUT_FILES = ("delivery", "gateway")
LAST_WORDS_COUNT = 8
CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.enable_http_proxy", 0),
)


class CommitLogStubs:
    """Stubs of the CommitLog's services on a channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.append = append_service_pb2_grpc.AppendServiceStub(channel)
        self.log = log_service_pb2_grpc.LogServiceStub(channel)


class IndexerStubs:
    """Stubs of the Indexer's services on a channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.queues = queue_service_pb2_grpc.QueueServiceStub(channel)
        self.queries = query_service_pb2_grpc.QueryServiceStub(channel)
        self.offsets = consumer_offset_service_pb2_grpc.ConsumerOffsetServiceStub(channel)
        self.index = index_service_pb2_grpc.IndexServiceStub(channel)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a store's files, in bytes and places, and how many directories the log has."""

    segment_size_bytes: int
    queue_file_size_bytes: int
    index_slot_count: int
    index_entry_capacity: int
    directory_count: int = 1

    @classmethod
    def by_chance(cls, chance: random.Random) -> Sizes:
        """Return small sizes, drawn by chance."""
        return cls(
            segment_size_bytes=chance.choice((64, 128, 256)) * KIB,
            queue_file_size_bytes=chance.choice((20, 100, 500)) * UNIT_SIZE_BYTES,
            index_slot_count=chance.choice((5, 50, 500)),
            index_entry_capacity=chance.choice((100, 400)),
            directory_count=chance.choice((1, 1, 2)),
        )

    def indexer_config(self, data_dir: Path) -> IndexerConfig:
        """The configuration for a rebuild of the same indexes elsewhere."""
        return IndexerConfig(
            data_dir=data_dir,
            queue_file_size_bytes=self.queue_file_size_bytes,
            index_slot_count=self.index_slot_count,
            index_entry_capacity=self.index_entry_capacity,
            message_delay_level=DELAY_LEVELS_TEXT,
            disk_ballast_bytes=0,
        )


class LiveStore:
    """A store and its services as processes.

    `children` are the services that were started last, by name, ended services included.

    A service that has a port in `ports` is found there again after each start; each other start has a port of its own.
    """

    def __init__(
        self,
        nursery: Nursery,
        data_dir: Path,
        sizes: Sizes,
        *,
        ports: Mapping[str, int] | None = None,
        clocks: Mapping[str, Path] | None = None,
    ) -> None:
        """`clocks` are files that say how far the wall clocks of services are ahead, for the library of `fault`."""
        self.data_dir = data_dir
        self.sizes = sizes
        self.children: dict[str, Child] = {}
        self.kill_count = 0
        self.start_count = 0
        self.trimmed_ahead_bytes = 0
        """Bytes of the log that may remain although the Indexer has forgotten them: the Janitor trims it first."""
        self._ports = ports or {}
        self._clocks = clocks or {}
        self._nursery = nursery
        self._channels: list[grpc.aio.Channel] = []

    async def start_commitlog(
        self, mode: str = "async", *flags: str, failpoints: str = "", environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the CommitLog and wait until it serves. Raises EndedEarly."""
        directories = [self.data_dir / name for name in ("commitlog", "commitlog2")][: self.sizes.directory_count]
        await self._start(
            "commitlog",
            (
                *("--segment-size-bytes", str(self.sizes.segment_size_bytes)),
                *("--log-dirs", ",".join(map(str, directories))),
                *("--flush-interval-ms", "10", "--flush-pages-min", "1", "--flush-thorough-interval-ms", "40"),
                *("--checkpoint-interval-ms", "20", "--snapshot-interval-ms", "60", "--dispatch-heartbeat-ms", "50"),
                *("--disk-reserve-bytes", "0", "--disk-ballast-bytes", "65536", "--disk-interval-ms", "50"),
                *("--disk-full-percent", "100"),
                *("--drain-timeout-ms", "1000"),
                *("--default-queue-count", "2", "--message-delay-level", DELAY_LEVELS_TEXT),
                *FLUSH_MODES[mode],
                *flags,
            ),
            {"REPUT_FAILPOINTS": failpoints, **(environment or {})},
        )

    async def start_indexer(self, *, failpoints: str = "", environment: Mapping[str, str] | None = None) -> None:
        """Start the Indexer, after the CommitLog, and wait until it serves. Raises EndedEarly."""
        await self._start(
            "indexer",
            (
                *("--commitlog-target", self.target("commitlog")),
                *("--queue-file-size-bytes", str(self.sizes.queue_file_size_bytes)),
                *("--index-slot-count", str(self.sizes.index_slot_count)),
                *("--index-entry-capacity", str(self.sizes.index_entry_capacity)),
                *("--message-delay-level", DELAY_LEVELS_TEXT),
                *("--flush-interval-ms", "10", "--flush-pages-min", "0", "--flush-thorough-interval-ms", "50"),
                *("--consumer-offset-interval-ms", "30", "--reconnect-ms-max", "50", "--drain-timeout-ms", "1000"),
                *("--disk-ballast-bytes", "65536"),
            ),
            {"REPUT_FAILPOINTS": failpoints, **(environment or {})},
        )

    async def start_janitor(self, *, failpoints: str = "", environment: Mapping[str, str] | None = None) -> None:
        """Start the Janitor, after both others. Segments that are full and indexed are expired. Raises EndedEarly."""
        self.trimmed_ahead_bytes = self.sizes.segment_size_bytes
        await self._start(
            "janitor",
            (
                *("--commitlog-target", self.target("commitlog"), "--indexer-target", self.target("indexer")),
                *("--retention-hours", "0", "--first-check-delay-ms", "3600000", "--delete-interval-ms", "0"),
                *("--disk-forcible-percent", "100", "--disk-full-percent", "100"),
                *("--delete-batch-count-max", "1"),
                *("--drain-timeout-ms", "1000"),
            ),
            {"REPUT_FAILPOINTS": failpoints, **(environment or {})},
        )

    async def start_delivery(self, *more: str, failpoints: str = "") -> None:
        """Start Delivery, after CommitLog and Indexer, with more flags, and wait until it serves. Raises EndedEarly."""
        behind = ("--commitlog-target", self.target("commitlog"), "--indexer-target", self.target("indexer"))
        flags = (*behind, *HASTY, "--message-delay-level", DELAY_LEVELS_TEXT, *more)
        await self._start("delivery", flags, {"REPUT_FAILPOINTS": failpoints})

    async def start_gateway(self, shards_file: Path | None = None) -> None:
        """Start the gateway, after what is behind it, and wait until it serves. Raises EndedEarly."""
        if shards_file is not None:
            await self._start("gateway", ("--shards-file", str(shards_file), *HASTY), {})
            return
        behind = ("--commitlog-target", self.target("commitlog"), "--delivery-target", self.target("delivery"))
        await self._start("gateway", (*behind, *HASTY), {})

    def target(self, service: str) -> str:
        """Where a service listens."""
        return f"127.0.0.1:{self.children[service].port}"

    def is_running(self, service: str) -> bool:
        """Whether a service was started and has not ended."""
        return service in self.children and not self.children[service].ended.done()

    async def kill(self, *services: str) -> None:
        """SIGKILL these services at once, all that run if none is named, and wait until they have ended."""
        chosen = [self.children[name] for name in services or tuple(self.children)]
        for child in chosen:
            child.send(signal.SIGKILL)
        for child in chosen:
            await child.wait_ended()

    async def stop(self, *services: str) -> dict[str, int]:
        """Send SIGTERM to these services in turn, and return their exit codes."""
        codes = {}
        for name in services:
            self.children[name].send(signal.SIGTERM)
            codes[name] = await self.children[name].wait_ended()
        return codes

    async def close(self) -> None:
        """Kill running services and close all channels."""
        await self.kill()
        for channel in self._channels:
            await channel.close()

    def last_words(self) -> str:
        """The last lines of each service on standard error."""
        return "".join(
            f"--- {name}\n{''.join(f'{line.strip():.400}' + chr(10) for line in child.lines[-LAST_WORDS_COUNT:])}"
            for name, child in self.children.items()
        )

    def commitlog(self) -> CommitLogStubs:
        """Stubs on a channel of their own."""
        return CommitLogStubs(self.channel("commitlog"))

    def indexer(self) -> IndexerStubs:
        """Stubs on a channel of their own."""
        return IndexerStubs(self.channel("indexer"))

    def delays(self) -> delay_service_pb2_grpc.DelayServiceAsyncStub:
        """A stub on a channel of its own."""
        return delay_service_pb2_grpc.DelayServiceStub(self.channel("delivery"))

    def janitor(self) -> retention_service_pb2_grpc.RetentionServiceAsyncStub:
        """A stub on a channel of its own."""
        return retention_service_pb2_grpc.RetentionServiceStub(self.channel("janitor"))

    def channel(self, service: str) -> grpc.aio.Channel:
        """A channel of its own, closed with the store."""
        channel = trusted(grpc.aio.insecure_channel(self.target(service), options=CHANNEL_OPTIONS))
        self._channels.append(channel)
        return channel

    async def _start(self, service: str, flags: tuple[str, ...], environment: Mapping[str, str]) -> None:
        common = ("--port", str(self._ports.get(service, 0)), "--metrics-port", "0")
        common += () if service in WITHOUT_FILES else ("--data-dir", str(self.data_dir))
        named = {f"REPUT_{service.upper()}_LOG_FORMAT": "json", **environment}
        if service in self._clocks:
            named["REPUT_CLOCK"] = str(self._clocks[service])
        child = await self._nursery.spawn(service, (*common, *flags), named)
        child.ended.add_done_callback(self._count_kill)
        self.children[service] = child
        self.start_count += 1
        await child.wait_serving()

    def _count_kill(self, ended: asyncio.Future[int]) -> None:
        self.kill_count += ended.result() == -signal.SIGKILL
