# SPDX-License-Identifier: Apache-2.0
"""The CommitLog's composition: settings, real file system and clock, engine, servicers and server."""

import ipaddress
import socket
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from reput.commitlog.v1 import (
    append_service_pb2,
    log_service_pb2,
    log_service_pb2_grpc,
    replication_service_pb2,
    segment_service_pb2,
    topic_service_pb2,
)

from libs.formats.records.host import Host
from libs.formats.state.replication import Seat
from libs.log.state import small_files
from libs.machine.clock import SystemClock
from libs.machine.posix_fs import PosixFs
from libs.requests.errors import Stopping
from libs.runtime.process import Shell
from libs.runtime.rpc.guard import service_token_of
from libs.runtime.rpc.late import LateServicer
from libs.runtime.rpc.peer import Connection, Peer
from libs.runtime.rpc.server import GrpcServer
from libs.runtime.settings import PeerConfig, ServerConfig, TelemetryConfig
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.steps import LeaderAt
from services.commitlog.engine.roles import SLAVE, Roles
from services.commitlog.engine.start.cut import Cut
from services.commitlog.engine.statistics import statistics_of
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.rpc.append_result import AppendResultEncoder
from services.commitlog.rpc.append_servicer import RAW_METHODS, AppendServicer
from services.commitlog.rpc.error_table import ERROR_TABLE
from services.commitlog.rpc.limits import LIMITS
from services.commitlog.rpc.log_servicer import LogServicer
from services.commitlog.rpc.replicate.link import LeaderLink
from services.commitlog.rpc.replicate.servicer import ReplicationServicer
from services.commitlog.rpc.segment_servicer import SegmentServicer
from services.commitlog.rpc.status import EARLY_METHODS, StatusServicer
from services.commitlog.rpc.topic_servicer import TopicServicer


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of the CommitLog process."""

    engine: CommitLogConfig = field(default_factory=CommitLogConfig)
    leader: PeerConfig = field(default_factory=lambda: PeerConfig(target=""))
    server: ServerConfig = field(default_factory=lambda: ServerConfig(port=7101))
    telemetry: TelemetryConfig = field(default_factory=lambda: TelemetryConfig(metrics_port=7201))

    def __post_init__(self) -> None:
        if self.engine.is_follower and not self.leader.target:
            raise ValueError("role slave needs leader_target, the address of the log that it follows")


class Service:
    """The CommitLog as the process shell runs it."""

    def __init__(self, settings: Settings, shell: Shell) -> None:
        replica_id = settings.engine.replica_id or f"{socket.gethostname()}:{settings.server.port}"
        self._config = replace(settings.engine, replica_id=replica_id)
        self._listen_host = settings.server.listen_host
        self._peer = Peer(name="leader", config=settings.leader, token=service_token_of(settings.server))
        self._leader: Connection | None = None
        self._roles: Roles | None = None
        self._drain_timeout_s = settings.server.drain_timeout_ms / 1000
        self._shell = shell
        self.commit_log = CommitLog(self._config, PosixFs(), SystemClock(), on_failure=shell.fail)
        shell.telemetry.observe("log", lambda: statistics_of(self.commit_log.log))
        self.append = LateServicer(AppendServicer)
        self._log = LateServicer(LogServicer, early=StatusServicer(self.commit_log))
        self._segments = LateServicer(SegmentServicer)
        self._topics = LateServicer(TopicServicer)
        self._replication = LateServicer(ReplicationServicer)
        self.server = GrpcServer(
            settings.server,
            errors=ERROR_TABLE,
            telemetry=shell.telemetry,
            request_size_bytes_max=self._config.append_request_size_bytes_max,
            limits=LIMITS,
        )
        services = append_service_pb2.DESCRIPTOR.services_by_name
        self.server.add_service(services["AppendService"], self.append, raw=RAW_METHODS)
        self.server.add_service(
            log_service_pb2.DESCRIPTOR.services_by_name["LogService"], self._log, early=EARLY_METHODS
        )
        self.server.add_service(segment_service_pb2.DESCRIPTOR.services_by_name["SegmentService"], self._segments)
        self.server.add_service(topic_service_pb2.DESCRIPTOR.services_by_name["TopicService"], self._topics)
        self.server.add_service(
            replication_service_pb2.DESCRIPTOR.services_by_name["ReplicationService"], self._replication
        )

    async def open(self) -> None:
        """Recover the log and start its loops. Raises StoreLocked, StoreError, FormatError or OSError."""
        settings = Seat(self._config.role, self._peer.config.target)
        seat = small_files.seat_of(PosixFs(), self._config.data_dir, settings)
        self._roles = Roles(settings, seat, self._open_log, self._reopen, self._leads, self._shell.fail)
        await self._open(seat)
        if seat == settings:  # what it was told before other settings counts no more, also when they come back
            await self._open_log().identity.stand_up()

    async def _open(self, seat: Seat, cut: Cut | None = None) -> None:
        config, roles = self._config, self._roles
        assert roles is not None
        leader = None
        if seat.role == SLAVE:
            self._leader = self._connect(seat.leader_target)
            link = LeaderLink(self._leader, silence_ms=config.replica_silence_ms)
            leader = LeaderAt(seat.leader_target, link.open, roles.cut, roles.move)
        host = store_host(self._listen_host, self.server.port)
        log = await self.commit_log.open(host, leader=leader, cut=cut, role=seat.role)
        streams = InflightBudget("streams", config.stream_count_max)
        service_streams = InflightBudget("streams of services", config.service_stream_count_max)
        inflight = InflightBudget("bytes", config.append_inflight_bytes_max)
        encoder = AppendResultEncoder(log.store_host)
        self.append.made = AppendServicer(log.pipeline, log.acknowledgements, encoder, streams, inflight, config)
        self._log.made = LogServicer(
            log.reader, log.followers, log.queue_offsets, log.topics.set_apart, streams, service_streams
        )
        self._segments.made = SegmentServicer(log.segments, log.disk, log.gate)
        self._topics.made = TopicServicer(log.topics, log.gate)
        self._replication.made = ReplicationServicer(log.replicas, service_streams, config, roles)

    async def _reopen(self, seat: Seat, cut: Cut | None) -> None:
        """Open the log anew. Calls get RECOVERING meanwhile, and those that last too long use what is closed."""
        self.server.hold()
        await self.drain()
        assert self._roles is not None
        await self.server.wait_calls(self._drain_timeout_s, but_count=self._roles.asking_count)
        await self._close_log()
        await self._open(seat, cut)
        self.server.admit()

    def _connect(self, target: str) -> Connection:
        peer = replace(self._peer, config=replace(self._peer.config, target=target))
        interceptors = self._shell.telemetry.client_interceptors()
        return peer.connect(interceptors=interceptors, reconnect_ms_max=self._config.reconnect_ms_max)

    async def _leads(self, target: str) -> bool:
        """Ask a log whether it leads."""
        connection = self._connect(target)
        stub: Any = log_service_pb2_grpc.LogServiceStub(connection.channel)
        try:
            status = await stub.GetStatus(log_service_pb2.GetStatusRequest(), **connection.options())
        except grpc.aio.AioRpcError:
            return False
        finally:
            await connection.channel.close()
        return bool(status.state == log_service_pb2.LOG_STATE_SERVING and not status.HasField("following"))

    async def _close_log(self) -> None:
        leader, self._leader = self._leader, None
        try:
            await self.commit_log.close()
        finally:
            if leader is not None:
                await leader.channel.close()

    def _open_log(self) -> OpenLog:
        """Return the log. Raises Stopping."""
        if self.commit_log.log is None:
            raise Stopping
        return self.commit_log.log

    async def until_connected(self) -> None:
        """Return at once: it needs no other service."""

    async def until_complete(self) -> None:
        """Return at once: all is done when it is open."""

    async def drain(self) -> None:
        """End the streams."""
        for servicer in (self.append.made, self._log.made, self._replication.made):
            if servicer is not None:
                servicer.drain()

    async def close(self) -> None:
        """Sync and close the store, and let go of the leader."""
        if self._roles is not None:
            await self._roles.finish()
        await self._close_log()


def store_host(listen_host: str, port: int) -> Host:
    """Return the address for records when none is configured: loopback for a name or a wildcard address."""
    try:
        address = ipaddress.ip_address(listen_host)
    except ValueError:
        return Host(ipaddress.IPv4Address("127.0.0.1").packed, port)
    return Host(ipaddress.IPv4Address("127.0.0.1").packed if address.is_unspecified else address.packed, port)
