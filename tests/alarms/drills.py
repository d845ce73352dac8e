# SPDX-License-Identifier: Apache-2.0
"""The drills, and the alarms that have none."""

from tests.alarms import disk_harms as disks
from tests.alarms import door_harms as doors
from tests.alarms import group_harms as groups
from tests.alarms import harms
from tests.alarms.drill import Drill

AWAY = frozenset({"ReputInstanceAway"})
FEWER = AWAY | {"ReputFewerInSync"}
AT_ONCE = 20
"""For alarms that look at five or fifteen minutes."""
AT_ONCE_OF_HOURS = 60
AT_ONCE_OF_FORECASTS = 120
AT_ONCE_OF_RESTARTS = 30
"""Three starts on a busy machine take more than a minute."""

DRILLS = (
    # a store
    Drill(
        "the only CommitLog is killed",
        "ReputServiceAway",
        harms.opened_store,
        harms.kill("commitlog"),
        "start the service",
        AWAY,
    ),
    Drill(
        "the Indexer is frozen",
        "ReputServiceAway",
        harms.opened_store,
        harms.freeze("indexer"),
        "kill it first (`kill -9`)",
        AWAY,
    ),
    Drill(
        "the Janitor is stopped",
        "ReputServiceAway",
        harms.opened_store,
        harms.stop("janitor"),
        "start the service",
        AWAY,
    ),
    Drill(
        "the disk is full",
        "ReputAppendsRefused",
        disks.on_small_room,
        disks.fill_room,
        "give the disk more space",
    ),
    Drill(
        "the disk is above the limit of the Janitor",
        "ReputDiskFull",
        disks.on_own_disk(50),
        disks.fill_disk,
        "give the disk more space",
        frozenset({"ReputAppendsRefused"}),
        times=AT_ONCE,
        is_on_own_disk=True,
    ),
    Drill(
        "the disk fills",
        "ReputDiskFills",
        disks.on_own_disk(disks.FORECAST_PERCENT),
        disks.fill_slowly,
        "as for [ReputDiskFull](#reputdiskfull)",
        times=AT_ONCE_OF_FORECASTS,
        is_on_own_disk=True,
    ),
    Drill(
        "the Indexer has a wrong address of its log",
        "ReputTopicsNotKnown",
        disks.looking_often,
        disks.lose_log,
        "correct `commitlog_target` and start it again",
        AWAY | {"ReputServiceAway"},
        times=AT_ONCE_OF_HOURS,
    ),
    Drill(
        "the log's disk is not mounted",
        "ReputOtherLog",
        harms.opened_store,
        harms.unmount,
        "mount the disk and start the CommitLog again",
        frozenset({"ReputAppendsRefused"}),
    ),
    Drill(
        "the log's disk is slow",
        "ReputAppendsSlow",
        harms.with_slow_disk,
        harms.slow_disk,
        "a faster disk",
        times=AT_ONCE,
    ),
    # groups
    Drill(
        "a group is blocked",
        "ReputGroupStandsStill",
        harms.opened_store,
        groups.block_key,
        "settle or bury the message that holds up its key",
    ),
    Drill(
        "the programs of a group do not run",
        "ReputGroupLate",
        harms.with_past_clock,
        groups.read_no_more,
        "start the programs",
        times=AT_ONCE,
    ),
    Drill(
        "messages are given up",
        "ReputDeadLetters",
        harms.opened_store,
        groups.bury,
        "reput dlq replay GROUP",
        times=AT_ONCE,
    ),
    Drill(
        "receivers give all messages back",
        "ReputRedeliveries",
        harms.opened_store,
        groups.fail_always,
        "fix the receivers",
        times=AT_ONCE_OF_HOURS,
    ),
    # copies
    Drill(
        "the leader is frozen, and no coordinator elects another",
        "ReputNoLeader",
        harms.copies,
        harms.lose_leader,
        "make another log the leader",
        FEWER,
    ),
    Drill(
        "the leader is frozen, and another log is elected",
        "ReputInstanceAway",
        harms.elected,
        harms.freeze("commitlog-a"),
        "start the process",
        FEWER,
    ),
    Drill(
        "the leader and the coordinator are frozen, so no log is elected",
        "ReputNoLeader",
        harms.elected,
        harms.lose_leader_and_coordinator,
        "restart the coordinator",
        FEWER | {"ReputNotEnoughReplicas", "ReputCoordinatorAway"},
    ),
    Drill(
        "the coordinator is frozen",
        "ReputCoordinatorAway",
        harms.elected,
        harms.lose_coordinator,
        "restore the coordinator",
    ),
    Drill(
        "a follower is killed",
        "ReputFewerInSync",
        harms.copies,
        harms.kill("commitlog-c"),
        "start it",
        AWAY,
        times=AT_ONCE,
    ),
    Drill(
        "both followers are frozen",
        "ReputNotEnoughReplicas",
        harms.copies,
        harms.freeze("commitlog-b", "commitlog-c"),
        "restart a member of the set",
        FEWER,
    ),
    # the door
    Drill(
        "Delivery is killed, and clients call it through the door",
        "ReputDoorServiceAway",
        doors.opened,
        doors.lose_delivery,
        "start the service",
        AWAY | {"ReputServiceAway"},
        times=2,
    ),
    Drill(
        "callers of the door do not read",
        "ReputDoorFull",
        doors.opened,
        doors.read_nothing,
        "slow the caller that does not read",
        times=AT_ONCE,
    ),
    # processes
    Drill(
        "a certificate ends within two days",
        "ReputCertificateEndsSoon",
        harms.with_certificate(1),
        harms.replace_certificate,
        "replace the file today",
        frozenset({"ReputCertificateEnds"}),
        is_harmed_from_start=True,
    ),
    Drill(
        "a certificate ends within two weeks",
        "ReputCertificateEnds",
        harms.with_certificate(10),
        harms.replace_certificate,
        "replace the file",
        is_harmed_from_start=True,
    ),
    Drill(
        "a log starts again and again",
        "ReputRestarts",
        harms.log_alone,
        harms.restart_often,
        "follow the last error",
        times=AT_ONCE_OF_RESTARTS,
    ),
    Drill(
        "a log gets no processor time",
        "ReputSlowLoop",
        harms.log_alone,
        harms.halt_often,
        "give the machine cores or memory",
        AWAY | {"ReputServiceAway", "ReputClockStepped"},
        times=AT_ONCE,
    ),
    Drill(
        "audit lines meet a full disk",
        "ReputAuditLinesLost",
        groups.with_audit_file,
        groups.fill_audit_file,
        "give the disk room",
        times=AT_ONCE,
    ),
    Drill(
        "a rights file is wrong",
        "ReputSettingsRefused",
        groups.with_rights,
        groups.spoil_rights,
        "reput access check FILE",
        times=AT_ONCE,
    ),
    Drill(
        "a reloaded setting is wrong",
        "ReputSettingsRefused",
        groups.with_settings,
        groups.spoil_settings,
        "reput config validate FILE",
        times=AT_ONCE,
    ),
    Drill(
        "a clock is set ahead by an hour",
        "ReputClockStepped",
        harms.with_clock(),
        harms.step_clock,
        "correct it",
        frozenset({"ReputLogAheadOfClock"}),
        times=AT_ONCE,
    ),
    Drill(
        "messages were appended with a clock that was ahead",
        "ReputLogAheadOfClock",
        harms.with_clock(harms.AHEAD_S * harms.SECOND_NS),
        harms.append_in_future,
        "stopped for as long as its log is ahead",
        AWAY | {"ReputClockStepped", "ReputServiceAway", "ReputNoLeader"},
        times=AT_ONCE,
    ),
)

UNDRILLED = {
    "ReputIndexerStopped": "needs a failing disk: make crash ONLY=disk has it",
    "ReputIndexerBehind": "needs 64 MiB that are not indexed within five minutes",
    "ReputDamage": "needs damaged bytes: tests/e2e has them",
    "ReputJanitorStale": "needs a Janitor that hangs and answers Prometheus",
    "ReputRetentionFails": "needs three runs of retention, each two minutes after the other",
    "ReputSegmentsLost": "needs a full disk and an Indexer that is behind",
    "ReputManyInFlight": "needs 800,000 messages in flight",
    "ReputGroupsBehind": "compares with an hour ago",
    "ReputMembersDiffer": "looks at an hour, and is for information",
    "ReputDeliveryTakenOver": "needs a second Delivery that takes over again and again",
    "ReputNobodyDelivers": "needs a Delivery that answers Prometheus, and delivers to nobody",
    "ReputSlowSettle": "looks at ten minutes of settling above a second",
    "ReputSlowSend": "needs RocketMQ's clients at a gateway",
    "ReputConsoleAway": "has the expression of ReputServiceAway, whose drills kill, freeze and stop services",
    "ReputBackupLate": "needs node_exporter: tests/e2e/test_cli_check.py has the file that it reads",
    "ReputCheckLate": "needs node_exporter, and looks at a quarter of an hour",
    "ReputOutboxLate": "needs node_exporter: clients/outbox/tests/test_command.py has the file that it reads",
    "ReputOutboxUnseen": "needs node_exporter, and looks at a quarter of an hour",
    "ReputVersionsDiffer": "needs a second version of Reput",
    "ReputCallsRefused": "needs ten refused calls a second",
    "ReputLogCut": "needs a former leader with bytes of its own: tests/e2e/test_replication.py has it",
    "ReputMemberOut": "needs a copy with another history",
}
"""Alarms without a drill, and the reason. promtool tests them with histories of metrics."""
