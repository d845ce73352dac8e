# SPDX-License-Identifier: Apache-2.0
"""The CommitLog's composition: settings, engine, servicers and server."""

import ipaddress
import socket
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from reput.commitlog.v1 import (
    append_service_pb2,
    backup_service_pb2,
    log_service_pb2,
    log_service_pb2_grpc,
    replication_service_pb2,
    segment_service_pb2,
    topic_service_pb2,
)

from libs.formats.records.host import Host
from libs.formats.state.replication import RoleSetting
from libs.log.state import data_dir, small_files
from libs.requests.errors import PeerError, Stopping
from libs.runtime.peer.calls import PeerClient
from libs.runtime.process import Shell
from libs.runtime.reload import take_over
from libs.runtime.rpc.server import GrpcServer
from libs.runtime.settings import PeerConfig, ServerConfig, TelemetryConfig, check_targets
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.by_hand import ByHand
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.ledger import BY_HAND, ElectedTerm
from services.commitlog.engine.replicate.steps import NOBODY, LeaderAt
from services.commitlog.engine.roles import FOLLOWER_ROLE, Decider, Roles
from services.commitlog.engine.start.cut import Cut
from services.commitlog.engine.statistics import (
    FollowerStatistics,
    acknowledgements_of,
    followers_of,
    statistics_of,
    syncs_of,
)
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.rpc.append_servicer import RAW_METHODS, AppendServicer
from services.commitlog.rpc.backup_servicer import BackupServicer
from services.commitlog.rpc.coordinate.doors import label_role, open_door
from services.commitlog.rpc.coordinate.settings import EtcdConfig, KubernetesConfig
from services.commitlog.rpc.current_log import CurrentLog
from services.commitlog.rpc.error_table import ERROR_TABLE
from services.commitlog.rpc.limits import LIMITS
from services.commitlog.rpc.log_servicer import LogServicer
from services.commitlog.rpc.replication_link import LeaderLink
from services.commitlog.rpc.replication_servicer import ReplicationServicer
from services.commitlog.rpc.segment_servicer import SegmentServicer
from services.commitlog.rpc.status import EARLY_METHODS, StatusServicer
from services.commitlog.rpc.topic_servicer import TopicServicer

if TYPE_CHECKING:
    from services.commitlog.engine.elect.member import ElectedMember

WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - known, not listened on


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of the CommitLog process."""

    engine: CommitLogConfig = field(default_factory=CommitLogConfig)
    leader: PeerConfig = field(default_factory=lambda: PeerConfig(target=""))
    etcd: EtcdConfig = field(default_factory=lambda: EtcdConfig(targets=""))
    kubernetes: KubernetesConfig = field(default_factory=KubernetesConfig)
    server: ServerConfig = field(default_factory=lambda: ServerConfig(port=7101))
    telemetry: TelemetryConfig = field(default_factory=lambda: TelemetryConfig(metrics_port=7201))

    def __post_init__(self) -> None:
        check_targets(self.engine.advertise_target, name="advertise_target")
        if self.engine.coordinator != "none" and self.engine.is_follower:
            raise ValueError("with a coordinator, role says as what the log leads if it is elected: not follower")
        if self.engine.is_follower and not self.leader.target:
            raise ValueError("role follower needs leader_target, the address of the log that it follows")
        if self.engine.coordinator == "etcd" and not self.etcd.members:
            raise ValueError("coordinator etcd needs etcd_targets, the addresses of etcd's members")
        if self.engine.coordinator != "none":
            self._check_elected()

    def _check_elected(self) -> None:
        if self.leader.target:
            raise ValueError("with a coordinator nobody is followed by settings: leader_target must be empty")
        if not self.engine.advertise_target and (not self.server.port or self.server.listen_host in WILDCARDS):
            raise ValueError("a coordinator needs advertise_target, the address under which others reach this log")


class Service:
    """The CommitLog as the process shell runs it."""

    live = (
        "auto_create_topics",
        "default_queue_count",
        "topic_count_max",
        "queue_count_max",
        "topic_queue_count_max",
        "disk_full_percent",
        "disk_open_percent",
        "disk_report_timeout_ms",
    )

    def __init__(self, settings: Settings, shell: Shell) -> None:
        replica_id = settings.engine.replica_id or f"{socket.gethostname()}:{settings.server.port}"
        self._config = replace(settings.engine, replica_id=replica_id)
        self._settings = settings
        self._connect = shell.peer(
            "leader", settings.leader, settings.server, reconnect_ms_max=self._config.reconnect_ms_max
        )
        self._shell = shell
        self.commit_log = CommitLog(self._config, shell.machine.fs, shell.machine.clock, on_failure=shell.fail)
        self._observe_log()
        is_elected = self._config.coordinator != "none"
        leader_target = "" if is_elected else settings.leader.target
        own = RoleSetting(FOLLOWER_ROLE if is_elected else self._config.role_name, leader_target)
        self._roles = Roles(own, self._open_log, self._hold, self._open_again, self._leader_at, shell.fail)
        shell.telemetry.observe("roles", self._roles.statistics)
        self._member = self._elected_member() if is_elected else None
        self._label = label_role(self._config.coordinator, settings.kubernetes, self._is_leader)
        self._by_hand = ByHand(self._roles, own, self._leads)
        self._decider: Decider = self._member or self._by_hand
        self.server = GrpcServer(
            settings.server,
            errors=ERROR_TABLE,
            telemetry=shell.telemetry,
            request_size_bytes_max=self._config.append_request_size_bytes_max,
            limits=LIMITS,
        )
        self._add_services()

    def _observe_log(self) -> None:
        telemetry, log = self._shell.telemetry, self.commit_log
        telemetry.observe("log", lambda: statistics_of(log.log))
        telemetry.observe_each("follower", ("replica",), lambda: followers_of(log.log), FollowerStatistics)
        telemetry.observe_durations(
            "append_acknowledgement",
            ("durability",),
            "Time from the write of a batch to its acknowledgement, also in streams, by the durability that it needs.",
            lambda: acknowledgements_of(log.log),
        )
        telemetry.observe_durations("sync", (), "Duration of the syncs to the disk.", lambda: syncs_of(log.log))

    def _add_services(self) -> None:
        config, log = self._config, CurrentLog(self.commit_log)
        streams = InflightBudget("streams", config.stream_count_max)
        service_streams = InflightBudget("streams of services", config.service_stream_count_max)
        inflight = InflightBudget("bytes", config.append_inflight_bytes_max)
        self.append = AppendServicer(log, streams, inflight, config)
        replication = ReplicationServicer(log, service_streams, config, self._decider, lambda: self._roles.setting)
        log_servicer = LogServicer(log, StatusServicer(self.commit_log, self._member), streams, service_streams)
        add = self.server.add_service
        append_service = append_service_pb2.DESCRIPTOR.services_by_name["AppendService"]
        turns = {"Append": self.append.append_turn}
        add(append_service, self.append, raw=RAW_METHODS, turns=turns, goes_on=("AppendStream",))
        add(log_service_pb2.DESCRIPTOR.services_by_name["LogService"], log_servicer, early=EARLY_METHODS)
        add(segment_service_pb2.DESCRIPTOR.services_by_name["SegmentService"], SegmentServicer(log))
        add(backup_service_pb2.DESCRIPTOR.services_by_name["BackupService"], BackupServicer(log, streams))
        add(topic_service_pb2.DESCRIPTOR.services_by_name["TopicService"], TopicServicer(log))
        add(replication_service_pb2.DESCRIPTOR.services_by_name["ReplicationService"], replication)

    def _elected_member(self) -> "ElectedMember":
        from services.commitlog.engine.elect.member import ElectedMember

        config, target = self._config, self._config.advertise_target
        identity = f"{config.replica_id}/{uuid.uuid4().hex}"
        coordinator = open_door(
            config.coordinator,
            self._settings.etcd,
            self._settings.kubernetes,
            identity=identity,
            lease_duration_ms=config.lease_duration_ms,
        )
        target = target or f"{self._settings.server.listen_host}:{self._settings.server.port}"
        member = ElectedMember(coordinator, self._roles, self._shell.machine.clock, config, target, identity)
        self._shell.telemetry.observe("election", member.statistics)
        return member

    def _is_leader(self) -> bool:
        return self._member is not None and self._member.lease_left_ms > 0

    def reload(self, settings: Settings) -> None:
        """Take the live settings. The engine reads them at each use, also after a change of roles."""
        for held in (self._config, self.commit_log.config):  # they differ since the log was opened with a role
            take_over(held, settings.engine, self.live)

    async def open(self) -> None:
        """Recover the log and start its loops. Raises StoreLocked, StoreError, FormatError or OSError (NoStore)."""
        fs = self._shell.machine.fs
        data_dir.check(fs, self._config.data_dir, may_create=self._config.create_store)
        own = self._roles.setting
        if self._member is None:
            self._roles.setting = small_files.role_setting_of(fs, self._config.data_dir, own)
        await self._open(self._roles.setting)
        if self._member is not None:
            self._member.start()
            if self._label is not None:
                self._label.loop.start()
        elif self._roles.setting == own:  # an operator's choice under other settings must never return
            await self._open_log().identity.remove_setting()

    async def _open(self, setting: RoleSetting, cut: Cut | None = None, term: ElectedTerm = BY_HAND) -> None:
        leader = self._leader_at(setting.leader_target) if setting.role == FOLLOWER_ROLE else None
        host = store_host(self._settings.server.listen_host, self.server.port)
        await self.commit_log.open(host, leader=leader, cut=cut, term=term, role=setting.role)

    async def _hold(self) -> None:
        """Close the log. Calls get RECOVERING meanwhile. Calls that last too long use a closed log."""
        self.server.hold()
        self._end_streams()
        drain_timeout_s = self._settings.server.drain_timeout_ms / 1000
        await self.server.wait_calls(drain_timeout_s, but_count=self._roles.asking_count)
        await self._close_log()

    async def _open_again(self, setting: RoleSetting, cut: Cut | None, term: ElectedTerm) -> None:
        await self._open(setting, cut, term)
        self.server.admit()

    def _leader_at(self, target: str) -> LeaderAt:
        if not target:
            return NOBODY
        connection = self._connect(target)
        link = LeaderLink(connection, silence_ms=self._config.replica_silence_ms)
        stand_back = self._member.stand_back if self._member else None
        return LeaderAt(target, link.open, self._roles.cut, self._move, connection.channel.close, stand_back)

    def _move(self, leader_target: str) -> None:
        """Act on a former leader's report that another log leads. The coordinator's record wins over the report."""
        if self._member is not None:
            self._member.look()
        else:
            self._by_hand.move(leader_target)

    async def _leads(self, target: str) -> bool:
        """Ask a log whether it leads."""
        connection = self._connect(target)
        stub = log_service_pb2_grpc.LogServiceStub(connection.channel)
        try:
            status = await PeerClient("log", connection).call(stub.GetStatus, log_service_pb2.GetStatusRequest())
        except PeerError:
            return False
        finally:
            await connection.channel.close()
        return status.state == log_service_pb2.LOG_STATE_SERVING and not status.HasField("following")

    async def _close_log(self) -> None:
        follower = None if self.commit_log.log is None else self.commit_log.log.follower
        try:
            await self.commit_log.close()
        finally:
            if follower is not None:
                await follower.leader.close()

    def _open_log(self) -> OpenLog:
        """Return the log. Raises Stopping."""
        if self.commit_log.log is None:
            raise Stopping
        return self.commit_log.log

    async def until_connected(self) -> None:
        """Return at once: the CommitLog needs no other service."""

    async def until_complete(self) -> None:
        """Return at once: the start is complete after `open`."""

    async def drain(self) -> None:
        """Let another log lead, or let the leader continue without this log, and end the streams."""
        if self._member is not None:
            await self._member.resign()
        await self.commit_log.take_leave()
        await self._stop_label()
        self._end_streams()

    async def _stop_label(self) -> None:
        label, self._label = self._label, None
        if label is not None:
            await label.stop()

    def _end_streams(self) -> None:
        self.append.drain()
        if (log := self.commit_log.log) is not None:
            log.followers.drain()
            log.replicas.drain()

    async def close(self) -> None:
        """Sync and close the store, and close the connection to the leader."""
        await self._stop_label()
        if self._member is not None:
            await self._member.stop()
        await self._roles.no_change()
        await self._close_log()


def store_host(listen_host: str, port: int) -> Host:
    """Return the address for records when none is configured: loopback for a name or a wildcard address."""
    try:
        address = ipaddress.ip_address(listen_host)
    except ValueError:
        return Host(ipaddress.IPv4Address("127.0.0.1").packed, port)
    return Host(ipaddress.IPv4Address("127.0.0.1").packed if address.is_unspecified else address.packed, port)
