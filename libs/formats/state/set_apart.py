# SPDX-License-Identifier: Apache-2.0
"""Topics and queues of RocketMQ that are kept in another way than Reput serves: they are set apart.

Their files are RocketMQ's alone; nobody appends to them or reads them here. What else RocketMQ keeps is served, or is
left alone as it is: docs/rocketmq.md section 5 has all of it. RocketMQ's counterparts are QueueTypeUtils,
CleanupPolicyUtils and MixAll.isLmq.
"""

from collections.abc import Mapping

from libs.formats import store_layout
from libs.formats.state.system_topics import LIGHT_QUEUE_PREFIX

QUEUE_TYPE, CLEANUP_POLICY = "queue.type", "cleanup.policy"
_SERVED = {QUEUE_TYPE: "SimpleCQ", CLEANUP_POLICY: "DELETE"}
"""The value of each attribute that is served, and that a topic without it has."""

LIGHT_QUEUE = "light queue"
BATCH_QUEUE = f"{QUEUE_TYPE}=BatchCQ"
COMPACTED = f"{CLEANUP_POLICY}=COMPACTION"

MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
"""Property that names the light queues which have a message besides its own queue."""

DIRECTORIES = {store_layout.BATCH_QUEUES: BATCH_QUEUE, store_layout.COMPACTED_LOG: COMPACTED}
"""Where RocketMQ keeps what, as <directory>/<topic>/<queue id>."""


def why_by_name(topic: str) -> str:
    """Return why a name alone sets a topic apart, empty if it does not."""
    return LIGHT_QUEUE if topic.startswith(LIGHT_QUEUE_PREFIX) else ""


def why_by_attributes(attributes: Mapping[str, str]) -> str:
    """Return why the attributes that topics.json has of a topic set it apart, empty if they do not.

    A value that nobody knows sets it apart, too: RocketMQ does not start with it, and what it means is unknown.
    """
    wanted = ((name, attributes.get(name, served), served) for name, served in _SERVED.items())
    return ", ".join(f"{name}={value}" for name, value, served in wanted if value != served)
