# SPDX-License-Identifier: Apache-2.0
"""Statistics are copied into messages by name: equal names are copied, and all other names are listed here."""

import inspect

import pytest
from google.protobuf.message import Message
from reput.commitlog.v1 import log_service_pb2
from reput.indexer.v1 import index_service_pb2
from reput.janitor.v1 import retention_service_pb2

from libs.runtime.rpc.by_name import named
from services.commitlog.engine.statistics import statistics_of
from services.indexer.engine.statistics import IndexerStatistics
from services.janitor.config import JanitorConfig
from services.janitor.engine.policy import Decision, Reason
from services.janitor.engine.retention_loop import RetentionStatistics

CASES: list[tuple[type, type[Message], set[str]]] = [
    (
        type(statistics_of(None)),
        log_service_pb2.GetStatusResponse,
        {
            "data_disk_total_bytes",
            "data_disk_used_percent",
            *("appended_batches_total", "repeated_batches_total", "rolls_total", "deleted_segments_total"),
            *("evicted_segments_total", "dispatch_stops_by_damage_total", "committed_physical_offset"),
            *("replica_count", "replica_lag_bytes", "leader_lag_bytes", "is_following"),
            *("in_sync_count", "in_sync_changes_total", "in_sync_lag_ms"),
            *("is_leader", "is_out", "not_enough_replicas_total", "refused_new_queues_total"),
        },
    ),
    (
        IndexerStatistics,
        index_service_pb2.GetStatusResponse,
        {
            *(
                "lag_bytes",
                "consumer_offset_count",
                "waiting_pull_count",
                "running_scan_count",
                "stopped",
                "gaps_total",
            ),
            *("locally_read_records_total", "scanned_rows_total", "scanned_frames_bytes_total", "sync_rounds_total"),
            *("index_filter_count", "index_files_searched_total", "index_files_skipped_total"),
            *("history_changes_total", "removed_queues_total", "is_other_log", "damaged_record_count"),
        },
    ),
    (
        RetentionStatistics,
        retention_service_pb2.GetStatusResponse,
        {"last_check_ms", "next_check_ms", "start_ms", "believed", "first_kept_store_time_ms"},
    ),
    (
        JanitorConfig,
        retention_service_pb2.GetPolicyResponse,
        {"data_dir", "create_store", "delete_when", "first_check_delay_ms", "topic_check_interval_ms"},
    ),
]


@pytest.mark.parametrize(("source", "message", "others"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_what_a_message_lacks_is_known(source: type, message: type[Message], others: set[str]) -> None:
    """A fact whose name differs by mistake reaches no message; names that differ on purpose are listed here."""
    told = set(message.DESCRIPTOR.fields_by_name)
    told |= {name.removesuffix("_count") + "s_total" for name in told}
    assert set(inspect.get_annotations(source)) - told == others


def test_what_has_the_same_name_is_told() -> None:
    """Equal names are copied, enumerations by their value; given values count more than the source's."""
    decision = Decision(7, 100, Reason.NOT_DUE, "why", None)
    told = named(retention_service_pb2.Decision, decision, later=("action", "last_store_time"), size_bytes=99)
    assert (told.base_physical_offset, told.reason, told.size_bytes) == (7, Reason.NOT_DUE.value, 99)


def test_a_field_that_nobody_fills_is_a_mistake() -> None:
    """A field without a source fails with the first message, and is not a silent zero."""
    with pytest.raises(AssertionError, match=r"object has nothing for .*'decisions'.* of Run"):
        named(retention_service_pb2.Run, object())
