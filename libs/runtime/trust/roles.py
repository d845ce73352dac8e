# SPDX-License-Identifier: Apache-2.0
"""Roles: the permissions of callers. A table has a rule for each method of each service, in the protos' order.

Clients produce, consume and query. Services are trusted: a false statement of a service would lose messages. Operators
take decisions that can't be undone. Services and operators are clients as well. A service is not an operator, and an
operator is not a service.
A method without a rule can't be served: `service_handler` refuses it at the start of the process.
docs/security.md describes how a caller shows its role.
"""

import enum
from collections.abc import Mapping


class Role(enum.Flag):
    """The roles of a caller. A value may combine several roles."""

    NOBODY = 0
    CLIENT = enum.auto()
    SERVICE = enum.auto()
    OPERATOR = enum.auto()


_C, _S, _O = Role.CLIENT, Role.SERVICE, Role.OPERATOR

_RULES: Mapping[str, Mapping[str, Role]] = {
    "reput.commitlog.v1.AppendService": {"Append": _C, "AppendStream": _C, "AppendState": _S},
    "reput.commitlog.v1.LogService": {
        "ReadRecords": _C,
        "StreamRecords": _C,
        "Dispatch": _S,
        "ReportProgress": _S,
        "CheckQueueOffsets": _S,
        "GetStatus": _C,
    },
    "reput.commitlog.v1.ReplicationService": {"Replicate": _S, "Promote": _O, "Demote": _O},
    # Operators let the Janitor delete: it asks the Indexer first and records its deletions.
    "reput.commitlog.v1.SegmentService": {"ListSegments": _C, "DeleteSegments": _S, "ReportDisk": _S},
    # Producers may make topics, as a first message does. Changing or deleting a topic needs an operator.
    "reput.commitlog.v1.TopicService": {
        "CreateTopic": _C,
        "UpdateTopic": _O,
        "GetTopic": _C,
        "ListTopics": _C,
        "DeleteTopic": _O,
    },
    # Groups have no owners: a client that may receive or commit offsets may also change, move or delete the group.
    "reput.delivery.v1.DeadLetterService": {"ListDeadLetters": _C, "ReplayDeadLetters": _C},
    "reput.delivery.v1.DelayService": {"ListDelayed": _C, "CancelDelayed": _C},
    "reput.delivery.v1.DeliveryService": {"Receive": _C, "Settle": _C, "Consume": _C},
    "reput.delivery.v1.GroupService": {
        "SetGroup": _C,
        "GetGroup": _C,
        "ListGroups": _C,
        "DeleteGroup": _C,
        "ResetGroup": _C,
    },
    "reput.delivery.v1.TransactionService": {"EndTransaction": _C, "ReceiveChecks": _C, "ListTransactions": _C},
    "reput.indexer.v1.ConsumerOffsetService": {
        "CommitConsumerOffset": _C,
        "GetConsumerOffset": _C,
        "ResetConsumerOffset": _C,
        "DeleteConsumerGroup": _C,
        "ListConsumerGroups": _C,
    },
    "reput.indexer.v1.GroupConfigService": {"StoreGroupConfigs": _C, "GetGroupConfig": _C},
    "reput.indexer.v1.IndexService": {"GetStatus": _C, "WaitIndexed": _C, "TrimTo": _S, "RemoveQueues": _O},
    "reput.indexer.v1.QueryService": {"QueryByKey": _C, "QueryByTime": _C, "QueryById": _C},
    "reput.indexer.v1.QueueService": {
        "Pull": _C,
        "Subscribe": _C,
        "GetOffsetByTime": _C,
        "GetQueueRange": _C,
        "ListQueues": _C,
    },
    "reput.indexer.v1.RebuildService": {"RebuildIndexes": _O},
    "reput.indexer.v1.ScanService": {"PlanScan": _C, "Scan": _C},
    "reput.janitor.v1.RetentionService": {"GetStatus": _C, "GetPolicy": _C, "RunOnce": _O, "ListHistory": _C},
}

ROLES: Mapping[str, Role] = {
    f"/{service}/{method}": role for service, methods in _RULES.items() for method, role in methods.items()
}
"""Maps the path of each method, as in a call, to the role that it needs."""
