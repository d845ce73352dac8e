# SPDX-License-Identifier: Apache-2.0
"""The table of errors is complete."""

import inspect

import pytest

from libs.requests.errors import RequestRefused, ServiceError
from libs.runtime.rpc.errors import BASE_TABLE, status_of
from services.commitlog import errors
from services.commitlog.rpc.error_table import ERROR_TABLE

BASES = {ServiceError, RequestRefused, errors.WriterError}
ARGUMENTS = {
    "MalformedRequest": ("no field",),
    "BatchEmpty": (),
    "LeaseOver": (),
    "NotElected": ("it is not in sync",),
    "BatchTooLarge": {"reason": "bad", "value": 9, "limit": 3},
    "TooManyNewQueues": {"value": 9, "limit": 3},
    "MessageTooLarge": {"what": "body", "field": "messages[0].body", "value": 9, "limit": 3},
    "QueueNotHere": {"field": "messages[0].queue_id", "topic": "orders", "value": 9, "version": 3},
    "ShareOutdated": {"topic": "orders", "given": 2, "version": 3},
    "QueueOutOfRange": {"field": "messages[0].queue_id", "topic": "orders", "value": 9, "limit": 3},
    "TopicNotFound": {"topic": "orders", "field": "name"},
    "TopicExists": ("orders",),
    "TopicForbidden": {"topic": "orders", "permission": "write", "field": "name"},
    "TopicSetApart": {"topic": "a", "why": "queue.type=BatchCQ", "field": "name"},
    "NotARecord": {"value": 5, "field": "start_physical_offset"},
    "BelowMinOffset": {"value": 5, "min_physical_offset": 9},
    "BeyondMaxOffset": {"value": 5, "max_physical_offset": 2, "field": "start_physical_offset"},
    "RecordDamaged": {"segment": "0" * 20, "position": 7, "reason": "checksum"},
    "AppendsRefused": ("full",),
    "ReplicaBehind": ("it is not connected",),
    "MayLoseData": ("it may lack something",),
    "AfterRefusal": (),
    "NotEnoughReplicas": {"in_sync": 1, "needed": 2},
    "QueueOffsetsUnknown": (),
    "StoreReplaced": (),
    "StoreSealed": (),
    "Stopping": (),
    "WindowFull": {"what": "bytes", "limit": 8},
    "StreamIdle": {"timeout_ms": 8},
    "StaleEpoch": {"epoch": 4},
    "NotLeader": ("leader:7101",),
    "HistoryDiffers": {"mine": "a", "theirs": "b"},
    "WriterSequenceGap": {"writer_id": "w", "sequence": 4, "expected": 2},
    "WriterContentDiffers": {"writer_id": "w", "sequence": 4},
    "WriterForgotten": {"writer_id": "w", "sequence": 4},
}
RAISED = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, ServiceError) and kind not in BASES
]


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
def test_every_error_has_a_row_whose_metadata_it_has(kind: type[ServiceError]) -> None:
    """Every error of the engine has a row, and the metadata of its row.

    None reaches a client as INTERNAL.
    """
    given = ARGUMENTS.get(kind.__name__, {"reason": "bad", "field": "name", "value": 1, "limit": 2})
    error = kind(**given) if isinstance(given, dict) else kind(*given)
    row = {**BASE_TABLE, **ERROR_TABLE}[kind]
    assert all(getattr(error, name) is not None for name in row.metadata)
    assert status_of(error, ERROR_TABLE).code == row.code.value[0]
