# SPDX-License-Identifier: Apache-2.0
"""Topics and queues of RocketMQ that are stored in a way that Reput does not serve: they are set apart.

Only RocketMQ uses their files. Reput neither appends to them nor reads them. RocketMQ's other data is served, or is
left unchanged: docs/rocketmq.md section 5 lists all data. RocketMQ's counterparts are QueueTypeUtils,
CleanupPolicyUtils and MixAll.isLmq.
"""

from collections.abc import Mapping

from libs.formats import store_layout
from libs.formats.config import topic_share
from libs.formats.errors import BadField
from libs.formats.state.system_topics import LIGHT_QUEUE_PREFIX

QUEUE_TYPE, CLEANUP_POLICY = "queue.type", "cleanup.policy"
_SERVED = {QUEUE_TYPE: "SimpleCQ", CLEANUP_POLICY: "DELETE"}
"""The served value of each attribute. It is also the default of a topic without the attribute."""

LIGHT_QUEUE = "light queue"
BATCH_QUEUE = f"{QUEUE_TYPE}=BatchCQ"
COMPACTED = f"{CLEANUP_POLICY}=COMPACTION"

MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
"""Property with the names of the light queues that have a message, besides its own queue."""

DIRECTORIES = {store_layout.BATCH_QUEUES: BATCH_QUEUE, store_layout.COMPACTED_LOG: COMPACTED}
"""RocketMQ's directory of each kind, with files in <directory>/<topic>/<queue id>."""


def why_by_name(topic: str) -> str:
    """Return why a name alone sets a topic apart, empty if the name does not."""
    return LIGHT_QUEUE if topic.startswith(LIGHT_QUEUE_PREFIX) else ""


def why_by_attributes(attributes: Mapping[str, str]) -> str:
    """Return why a topic's attributes in topics.json set it apart, empty if they do not.

    An unknown value sets it apart, too: RocketMQ does not start with it, and its meaning is unknown. So does a share
    that this release can't read: it would accept messages for queues of other logs.
    """
    wanted = ((name, attributes.get(name, served), served) for name, served in _SERVED.items())
    reasons = [f"{name}={value}" for name, value, served in wanted if value != served]
    if (share := attributes.get(topic_share.SHARE)) is not None:
        try:
            topic_share.loads(share)
        except BadField as error:
            reasons.append(error.reason)
    return ", ".join(reasons)
