# SPDX-License-Identifier: Apache-2.0
"""The needs of each method while the indexes lack records that were answered from them.

Methods are registered with the needs in this table. A method without an entry fails the start, so that no method is
forgotten.
"""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from google.protobuf.descriptor import ServiceDescriptor

from libs.runtime.rpc.handlers import Around
from services.indexer.engine.follow.completeness import Completeness

Need: TypeAlias = Callable[[Completeness], AbstractContextManager[Callable[[], None]]] | None

ALL: Need = Completeness.answering
"""An answer would lack messages: it is refused, before it begins or before it is sent."""
WHAT_IS_FOUND: Need = Completeness.finding
"""A found message is right, but a message that is not found may exist."""
NOTHING: Need = None
"""It is no answer from the indexes, or the method checks by itself."""

NEEDS: dict[str, Need] = {
    "QueueService/Pull": ALL,
    "QueueService/Subscribe": ALL,
    "QueueService/GetOffsetByTime": ALL,
    "QueueService/GetQueueRange": ALL,
    "QueueService/ListQueues": ALL,
    "QueryService/QueryByKey": ALL,
    "QueryService/QueryByTime": ALL,
    "QueryService/QueryById": WHAT_IS_FOUND,
    "ScanService/PlanScan": ALL,
    "ScanService/Scan": ALL,
    "ConsumerOffsetService/CommitConsumerOffset": NOTHING,
    "ConsumerOffsetService/GetConsumerOffset": NOTHING,  # offsets are the group's own; a lag is of the indexed records
    "ConsumerOffsetService/ResetConsumerOffset": NOTHING,  # it checks before it moves the group
    "ConsumerOffsetService/DeleteConsumerGroup": NOTHING,
    "ConsumerOffsetService/ListConsumerGroups": NOTHING,
    "GroupConfigService/StoreGroupConfigs": NOTHING,
    "GroupConfigService/GetGroupConfig": NOTHING,
    "IndexService/GetStatus": NOTHING,
    "IndexService/WaitIndexed": ALL,
    "IndexService/TrimTo": NOTHING,
    "IndexService/RemoveQueues": NOTHING,  # each of its steps checks
    "RebuildService/RebuildIndexes": NOTHING,
}


def around(service: ServiceDescriptor, completeness: Completeness) -> dict[str, Around]:
    """Return the context managers in which the methods of a service are answered."""
    names = {method.name: f"{service.name}/{method.name}" for method in service.methods}
    unknown = set(names.values()) - NEEDS.keys()
    assert not unknown, f"services/indexer/rpc/needs.py does not say what {unknown} need"
    needs = {name: NEEDS[full_name] for name, full_name in names.items()}
    return {name: functools.partial(need, completeness) for name, need in needs.items() if need is not None}
