# SPDX-License-Identifier: Apache-2.0
"""Topics of the store itself. RocketMQ's counterpart is TopicValidator's set of system topics."""

from libs.formats.config.topics_json import TopicConfig
from libs.formats.records.delay_level import DELAY_LEVEL_MAX, SCHEDULE_TOPIC

TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Topic where messages wait for their delivery time."""
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Topic where half messages wait until their transaction ends."""
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Topic of the records of ended transactions."""
CHECKED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Topic for half messages whose producers were asked too often."""

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
DEAD_LETTER_PREFIX = "%DLQ%"
"""Prefix of the topics of groups' dead letters, which the store creates."""
LIGHT_QUEUE_PREFIX = "%LMQ%"
"""Prefix of RocketMQ's light queues (4.9.3 and later). Their units are of other topics' records. No list has them."""
SYSTEM_TOPICS = (
    TopicConfig(name=HALF_TOPIC, read_queue_count=1, write_queue_count=1),
    TopicConfig(name=OP_TOPIC, read_queue_count=1, write_queue_count=1),
    TopicConfig(name=SCHEDULE_TOPIC, read_queue_count=DELAY_LEVEL_MAX, write_queue_count=DELAY_LEVEL_MAX),
    TopicConfig(name=TIMER_TOPIC, read_queue_count=1, write_queue_count=1),
)
"""The system topics of every store, sorted by name."""

STATE_TOPIC = "rmq_sys_reput_state"
"""Topic of the state that must survive a lost Indexer (docs/formats/state_record.md)."""
STATE_QUEUE_ID = 0
DELIVERY_TOPIC = "rmq_sys_reput_delivery"
"""Topic of the journal of deliveries (docs/formats/delivery_record.md). A store with a Delivery has it."""
DELIVERY_QUEUE_ID = 0
DELIVERY_GROUP = DELIVERY_TOPIC
"""The group whose consumer offset in the journal's queue is the begin of the journal's last copy."""
DELIVERY_LEFT_QUEUE_ID = 1
"""A queue that the journal does not have. The group's consumer offset there is the queue offset, in the journal's
queue, of the record with which a Delivery left the journal at a clean stop."""
LEVELS_GROUP = "rmq_sys_reput_levels"
"""The group whose offsets in the queues of the schedule topic are the progress of the delay levels."""
OWN_GROUPS = frozenset({DELIVERY_GROUP, LEVELS_GROUP})
"""Groups whose offsets are Delivery's own progress. No member can receive for them, and they have no policy."""
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_SYSTEM_GROUPS = OWN_GROUPS | {
    "CID_ONS-HTTP-PROXY", "CID_ONSAPI_OWNER", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_PULL", "FILTERSRV_CONSUMER",
    "SCHEDULE_CONSUMER", "SELF_TEST_C_GROUP", "TOOLS_CONSUMER", "__MONITOR_CONSUMER",
}  # fmt: skip
"""Groups of the store and of RocketMQ itself (MixAll)."""
INTERNAL_TOPICS = (HALF_TOPIC, OP_TOPIC, CHECKED_TOPIC, DELIVERY_TOPIC, STATE_TOPIC, TIMER_TOPIC)
"""Topics to which only the services of the store append, by AppendState, which creates them. Producers' messages that
have to wait are stored in some of these topics, too."""

_MADE_PREFIXES = ("%", "RMQ_SYS_", SYSTEM_TOPIC_PREFIX, "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC", "TBW102")
SYSTEM_NAMES = frozenset([CHECKED_TOPIC, *(topic.name for topic in SYSTEM_TOPICS)])


def is_system_topic(name: str) -> bool:
    """Return whether the store itself needs the topic. No client may append to it, change it or delete it."""
    return name in SYSTEM_NAMES or name.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(name: str) -> bool:
    """Return whether the store, or RocketMQ itself, keeps its own positions as this group."""
    return name in _SYSTEM_GROUPS or name.startswith(_SYSTEM_GROUP_PREFIX) or is_system_topic(name)


def is_made_by_store(name: str) -> bool:
    """Return whether RocketMQ's broker creates the topic itself, so that a list of topics may lack it."""
    return name in SYSTEM_NAMES or name.startswith(_MADE_PREFIXES)
