# SPDX-License-Identifier: Apache-2.0
"""What each method needs of the indexes while they do not hold all that was ever answered from them.

Methods are registered with what this table says; one that it lacks is not served, so that none is forgotten.
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
"""An answer would lack messages: it is refused, before it begins or before it leaves."""
WHAT_IS_FOUND: Need = Completeness.finding
"""What is found is right, but nobody can say that something is not there."""
NOTHING: Need = None
"""It is no answer from the indexes, or it looks after itself."""

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
    "ConsumerOffsetService/GetConsumerOffset": NOTHING,  # offsets are the group's own; a lag is of what is indexed
    "ConsumerOffsetService/ResetConsumerOffset": NOTHING,  # it makes sure before it moves the group
    "ConsumerOffsetService/DeleteConsumerGroup": NOTHING,
    "ConsumerOffsetService/ListConsumerGroups": NOTHING,
    "GroupConfigService/StoreGroupConfigs": NOTHING,
    "GroupConfigService/GetGroupConfig": NOTHING,
    "IndexService/GetStatus": NOTHING,
    "IndexService/WaitIndexed": ALL,
    "IndexService/TrimTo": NOTHING,
    "IndexService/RemoveQueues": NOTHING,  # each of its steps asks
    "RebuildService/RebuildIndexes": NOTHING,
}


def around(service: ServiceDescriptor, completeness: Completeness) -> dict[str, Around]:
    """Return the blocks in which the methods of a service are answered."""
    names = {method.name: f"{service.name}/{method.name}" for method in service.methods}
    unknown = set(names.values()) - NEEDS.keys()
    assert not unknown, f"services/indexer/rpc/needs.py does not say what {unknown} need"
    needs = {name: NEEDS[full_name] for name, full_name in names.items()}
    return {name: functools.partial(need, completeness) for name, need in needs.items() if need is not None}
