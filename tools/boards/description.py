# SPDX-License-Identifier: Apache-2.0
"""The boards: their panels, with the queries of Prometheus, units and words. tools/boards/panels.py has the marks."""

from tools.boards.panels import STORE_LABEL, Board, Panel, Query


def _each(metric: str, legend: str = "{{job}} {{instance}}") -> Query:
    """Query a metric that all services have, each with its own name."""
    return Query(f'{{__name__=~"reput_(commitlog|indexer|janitor|delivery|gateway)_{metric}",{STORE_LABEL}}}', legend)


def _quantile(quantile: str, histogram: str, by: str, legend: str, mark: str = "{S}") -> Query:
    rate = f"rate({histogram}_bucket{mark}{{R}})"
    return Query(f"histogram_quantile({quantile}, sum by ({by}le) ({rate}))", legend)


_OF_SERVICE = "* on (job, instance) group_left (service) reput_build_info{S}"
"""Gives the metrics of a process the name of its service."""
_LINES = '{{__name__=~"reput_.+_audit_{}_lines_total",' + STORE_LABEL + "}}"
_ACKNOWLEDGEMENT = "reput_commitlog_append_acknowledgement_seconds"
_REPLICATED = '{durability="replicated",' + STORE_LABEL + "}"

STORE = Board(
    "store",
    "Reput: store",
    "Messages, waiting times, disks and processes of a store.",
    (
        Panel(
            "Messages",
            "Messages that come into the log and that pulls and subscriptions return, each second.",
            "cps",
            (
                Query("sum(rate(reput_commitlog_log_appended_messages_total{S}{R}))", "in"),
                Query("sum(rate(reput_indexer_topic_pulled_messages_total{S}{R}))", "out"),
            ),
        ),
        Panel(
            "Bytes",
            "Bytes of records that are indexed and that readers get, each second.",
            "Bps",
            (
                Query("sum(rate(reput_indexer_topic_indexed_bytes_total{S}{R}))", "in"),
                Query("sum(rate(reput_indexer_topic_pulled_bytes_total{S}{R}))", "out"),
            ),
        ),
        Panel(
            "Time to the acknowledgement of an append",
            "By the durability that the batch needs.",
            "s",
            (
                _quantile(
                    "0.5", "reput_commitlog_append_acknowledgement_seconds", "durability, ", "{{durability}} p50"
                ),
                _quantile(
                    "0.99", "reput_commitlog_append_acknowledgement_seconds", "durability, ", "{{durability}} p99"
                ),
            ),
        ),
        Panel(
            "Syncs to the disk",
            "Duration of a sync of the log. A slow disk shows here first.",
            "s",
            (
                _quantile("0.5", "reput_commitlog_sync_seconds", "", "p50"),
                _quantile("0.99", "reput_commitlog_sync_seconds", "", "p99"),
            ),
        ),
        Panel(
            "Appends are accepted",
            "1: the log accepts appends. 0: no log accepts them.",
            "short",
            (Query("max by (job) (reput_commitlog_log_is_writable{S})", "{{job}}"),),
        ),
        Panel(
            "Indexer behind the log",
            "Bytes of the log that queries and pulls do not find yet.",
            "bytes",
            (Query("max by (instance) (reput_indexer_index_lag_bytes{S})", "{{instance}}"),),
        ),
        Panel(
            "Disks",
            "Used share of the fullest disk of the log, and of the Indexer's disk.",
            "percentunit",
            (
                Query("max by (instance) (reput_commitlog_log_disk_used_ratio{S})", "log {{instance}}"),
                Query("max(reput_janitor_retention_indexer_disk_used_ratio{S})", "indexes"),
            ),
        ),
        Panel(
            "Segments",
            "Segments of the log, and segments that retention deleted within an hour.",
            "short",
            (
                Query("max by (instance) (reput_commitlog_log_segments{S})", "{{instance}}"),
                Query("sum(increase(reput_janitor_retention_deleted_segments_total{S}[1h]))", "deleted in 1 h"),
            ),
        ),
        Panel(
            "Calls",
            "Calls that ended, by service. A stream counts when it ends.",
            "reqps",
            (
                Query(
                    'sum by (job) (rate({__name__=~"reput_.+_rpc_duration_seconds_count",' + STORE_LABEL + "}{R}))",
                    "{{job}}",
                ),
            ),
        ),
        Panel(
            "Refused calls",
            "Calls and batches that were refused, by reason.",
            "reqps",
            (
                Query(
                    'sum by (reason) (rate({__name__=~"reput_.+_rpc_refusals_total",' + STORE_LABEL + "}{R}))",
                    "{{reason}}",
                ),
            ),
        ),
        Panel(
            "Held by the door",
            "Bytes of requests and answers that gateways hold, because a service or a caller does not take them.",
            "bytes",
            (
                Query("sum by (instance) (reput_gateway_door_held_request_bytes{S})", "requests {{instance}}"),
                Query("sum by (instance) (reput_gateway_door_held_answer_bytes{S})", "answers {{instance}}"),
            ),
        ),
        Panel(
            "Calls that the door does not pass on",
            "Calls that a limit of the door refused, and calls whose service was away.",
            "reqps",
            (
                Query("sum by (service) (rate(reput_gateway_door_full_calls_total{S}{R}))", "full {{service}}"),
                Query("sum by (service) (rate(reput_gateway_door_unreached_calls_total{S}{R}))", "away {{service}}"),
            ),
        ),
        Panel("Connections", "Open connections of callers.", "short", (_each("front_connections"),)),
        Panel(
            "Pauses",
            "The longest pause of each service in the last minute or two: no call is answered meanwhile.",
            "s",
            (_each("loop_longest_pause_seconds"),),
        ),
        Panel(
            "Processors",
            "Processor time of each service: 1 is a whole core.",
            "short",
            (
                Query(
                    f"rate(process_cpu_seconds_total{{S}}{{R}}) {_OF_SERVICE}",
                    "{{service}} {{instance}}",
                ),
            ),
        ),
        Panel(
            "Memory",
            "Resident memory of each service.",
            "bytes",
            (
                Query(
                    f"process_resident_memory_bytes{{S}} {_OF_SERVICE}",
                    "{{service}} {{instance}}",
                ),
            ),
        ),
        Panel(
            "Audit",
            "Audit lines that were lost or only counted, within an hour.",
            "short",
            (
                Query(f'sum(increase({{__name__=~"reput_.+_audit_lost_lines_total",{STORE_LABEL}}}[1h]))', "lost"),
                Query(
                    f'sum(increase({{__name__=~"reput_.+_audit_counted_lines_total",{STORE_LABEL}}}[1h]))', "counted"
                ),
            ),
        ),
    ),
)

TOPICS = Board(
    "topics",
    "Reput: topics",
    "Messages and bytes of each topic, and the age of its first and its last message.",
    (
        Panel(
            "Messages in",
            "Messages that come into a topic, each second.",
            "cps",
            (Query("sum by (topic) (rate(reput_indexer_topic_indexed_messages_total{T}{R}))", "{{topic}}"),),
        ),
        Panel(
            "Messages out",
            "Messages that pulls and subscriptions return, each second; also to Delivery.",
            "cps",
            (Query("sum by (topic) (rate(reput_indexer_topic_pulled_messages_total{T}{R}))", "{{topic}}"),),
        ),
        Panel(
            "Bytes in",
            "Bytes of the records of a topic, each second.",
            "Bps",
            (Query("sum by (topic) (rate(reput_indexer_topic_indexed_bytes_total{T}{R}))", "{{topic}}"),),
        ),
        Panel(
            "Bytes out",
            "Bytes of the records that readers get, each second.",
            "Bps",
            (Query("sum by (topic) (rate(reput_indexer_topic_pulled_bytes_total{T}{R}))", "{{topic}}"),),
        ),
        Panel(
            "Stored messages",
            "Messages that readers can still get.",
            "short",
            (Query("max by (topic) (reput_indexer_topic_stored_messages{T})", "{{topic}}"),),
        ),
        Panel(
            "Age of the oldest message",
            "Time since the first stored message of a topic was stored.",
            "s",
            (
                Query(
                    "time() - min by (topic) (reput_indexer_topic_oldest_message_time_seconds{T} > 0)",
                    "{{topic}}",
                ),
            ),
        ),
        Panel(
            "Time since the last message",
            "A producer that has stopped shows here.",
            "s",
            (
                Query(
                    "time() - max by (topic) (reput_indexer_topic_last_message_time_seconds{T} > 0)",
                    "{{topic}}",
                ),
            ),
        ),
        Panel(
            "Topics without metrics",
            "Topics beyond metrics_topic_count_max.",
            "short",
            (Query("max(reput_indexer_measured_left_out_topics{S})", "left out"),),
        ),
    ),
    (("topic", "reput_indexer_topic_stored_messages"),),
)

GROUPS = Board(
    "groups",
    "Reput: groups",
    "How far groups are behind, and what Delivery does for the groups that share messages.",
    (
        Panel(
            "Messages behind",
            "Stored messages from the group's offsets on, of every group.",
            "short",
            (Query("max by (group, topic) (reput_indexer_group_lag_messages{G})", "{{group}} {{topic}}"),),
        ),
        Panel(
            "Time behind",
            "Time since the first of these messages was stored.",
            "s",
            (Query("max by (group, topic) (reput_indexer_group_lag_seconds{G})", "{{group}} {{topic}}"),),
        ),
        Panel(
            "Bytes behind",
            "Bytes of the records of these messages.",
            "bytes",
            (Query("max by (group, topic) (reput_indexer_group_lag_bytes{G})", "{{group}} {{topic}}"),),
        ),
        Panel(
            "Messages with receivers",
            "Unsettled messages that receivers have.",
            "short",
            (Query("max by (group, topic) (reput_delivery_group_lag_in_flight_messages{G})", "{{group}} {{topic}}"),),
        ),
        Panel(
            "Messages that wait",
            "Messages that wait for their next attempt, and messages that wait for another message or a member.",
            "short",
            (
                Query(
                    "max by (group, topic) (reput_delivery_group_lag_waiting_messages{G})", "{{group}} {{topic}} again"
                ),
                Query("max by (group, topic) (reput_delivery_group_lag_held_messages{G})", "{{group}} {{topic}} held"),
            ),
        ),
        Panel(
            "Deliveries",
            "Messages that receivers got, got again, and settled, each second.",
            "cps",
            (
                Query("sum(rate(reput_delivery_group_received_total{S}{R}))", "received"),
                Query("sum(rate(reput_delivery_group_redelivered_total{S}{R}))", "received again"),
                Query("sum(rate(reput_delivery_group_settled_total{S}{R}))", "settled"),
            ),
        ),
        Panel(
            "Time from a delivery to its acknowledgement",
            "Slow receivers show here.",
            "s",
            (
                _quantile("0.5", "reput_delivery_settle_seconds", "", "p50"),
                _quantile("0.99", "reput_delivery_settle_seconds", "", "p99"),
            ),
        ),
        Panel(
            "Dead letters",
            "Messages that became dead letters within an hour.",
            "short",
            (Query("sum by (group) (increase(reput_delivery_dead_letter_messages_total{G}[1h]))", "{{group}}"),),
        ),
        Panel(
            "Delayed messages",
            "Messages that wait for their time, and messages whose time has come.",
            "short",
            (
                Query("max(reput_delivery_delay_messages_waiting{S})", "waiting"),
                Query("max(reput_delivery_delay_messages_due{S})", "due"),
                Query("max(reput_delivery_delay_level_messages_waiting{S})", "waiting, with a level"),
            ),
        ),
        Panel(
            "Open transactions",
            "Transactions that have no end yet.",
            "short",
            (Query("max(reput_delivery_transaction_transactions_open{S})", "open"),),
        ),
    ),
    (("group", "reput_indexer_group_lag_messages"),),
)

REPLICATION = Board(
    "replication",
    "Reput: replication",
    "The copies of a log: their leader, their lag, and the in-sync set.",
    (
        Panel(
            "Leader",
            "1: the log leads. A log that leads twice, or never, needs a look.",
            "short",
            (Query("max by (instance) (reput_commitlog_log_is_leader{S})", "{{instance}}"),),
        ),
        Panel(
            "In-sync set",
            "Logs in the set, logs of it that answer, and logs that must be in it for REPLICATED.",
            "short",
            (
                Query("max(reput_commitlog_log_in_sync_replicas{S})", "in sync"),
                Query("max(reput_commitlog_log_live_in_sync_replicas{S})", "answer"),
                Query("max(reput_commitlog_log_min_in_sync_replicas{S})", "needed"),
            ),
        ),
        Panel(
            "Lag of followers",
            "Bytes that a follower has not yet.",
            "bytes",
            (Query("max by (replica) (reput_commitlog_follower_lag_bytes{S})", "{{replica}}"),),
        ),
        Panel(
            "Followers' unsynced bytes",
            "Bytes that a follower has not on its disk yet.",
            "bytes",
            (Query("max by (replica) (reput_commitlog_follower_unsynced_bytes{S})", "{{replica}}"),),
        ),
        Panel(
            "Followers in sync",
            "1: the follower is in the in-sync set.",
            "short",
            (Query("max by (replica) (reput_commitlog_follower_is_in_sync{S})", "{{replica}}"),),
        ),
        Panel(
            "Time behind of the in-sync set",
            "Time since the slowest log of the set had all.",
            "s",
            (Query("max(reput_commitlog_log_in_sync_lag_seconds{S})", "slowest"),),
        ),
        Panel(
            "Time to a REPLICATED acknowledgement",
            "From the write of a batch until the in-sync set has it.",
            "s",
            (_quantile("0.99", _ACKNOWLEDGEMENT, "", "p99", _REPLICATED),),
        ),
        Panel(
            "Refused for too few copies",
            "Appends that were refused with NOT_ENOUGH_REPLICAS, each second.",
            "cps",
            (Query("sum(rate(reput_commitlog_log_not_enough_replicas_total{S}{R}))", "refused"),),
        ),
        Panel(
            "Epoch",
            "It grows with each new leader.",
            "short",
            (Query("max by (instance) (reput_commitlog_log_epoch{S})", "{{instance}}"),),
        ),
        Panel(
            "Changes of roles and cuts",
            "Logs that opened anew for another role, and logs whose end was cut, within an hour.",
            "short",
            (
                Query("sum(increase(reput_commitlog_roles_changes_total{S}[1h]))", "roles"),
                Query("sum(increase(reput_commitlog_roles_cuts_total{S}[1h]))", "cuts"),
                Query("sum(increase(reput_commitlog_log_in_sync_changes_total{S}[1h]))", "in-sync set"),
            ),
        ),
    ),
)

_SCANS = '{method=~"reput.indexer.v1.ScanService/.+",' + STORE_LABEL + "}"
_STREAMS = '{method=~"reput.commitlog.v1.AppendService/.+",' + STORE_LABEL + "}"
SPARK = Board(
    "spark",
    "Reput: Spark",
    "The reads and writes of the Spark connector, as the store sees them.",
    (
        Panel(
            "Scans that run",
            "A scan is a task of Spark that reads a part of a topic.",
            "short",
            (Query("sum(reput_indexer_index_running_scans{S})", "scans"),),
        ),
        Panel(
            "Rows",
            "Rows that scans send, each second.",
            "cps",
            (Query("sum(rate(reput_indexer_index_scanned_rows_total{S}{R}))", "rows"),),
        ),
        Panel(
            "Bytes",
            "Bytes of frames that scans send, each second.",
            "Bps",
            (Query("sum(rate(reput_indexer_index_scanned_frames_bytes_total{S}{R}))", "bytes"),),
        ),
        Panel(
            "Calls of scans",
            "Plans and scans that ended, by the code of their end.",
            "reqps",
            (
                Query(
                    f"sum by (method, code) (rate(reput_indexer_rpc_duration_seconds_count{_SCANS}{{R}}))",
                    "{{method}} {{code}}",
                ),
            ),
        ),
        Panel(
            "Duration of scans",
            "From the begin of a scan to its end: a task of Spark reads as fast as it works.",
            "s",
            (_quantile("0.99", "reput_indexer_rpc_duration_seconds", "method, ", "{{method}} p99", _SCANS),),
        ),
        Panel(
            "Calls of writers",
            "Appends that ended, by the code of their end. The sink of Spark appends by streams.",
            "reqps",
            (
                Query(
                    f"sum by (method, code) (rate(reput_commitlog_rpc_duration_seconds_count{_STREAMS}{{R}}))",
                    "{{method}} {{code}}",
                ),
            ),
        ),
        Panel(
            "Batches",
            "Batches that were appended, and batches that a writer sent again and that were stored before.",
            "cps",
            (
                Query("sum(rate(reput_commitlog_log_appended_batches_total{S}{R}))", "appended"),
                Query("sum(rate(reput_commitlog_log_repeated_batches_total{S}{R}))", "again"),
            ),
        ),
    ),
)

BOARDS = (STORE, TOPICS, GROUPS, REPLICATION, SPARK)
