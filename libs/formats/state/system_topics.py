# SPDX-License-Identifier: Apache-2.0
"""Topics that belong to the store itself. RocketMQ's counterpart is TopicValidator's set of system topics."""

from libs.formats.config.topics_json import TopicConfig
from libs.formats.records.delay_level import DELAY_LEVEL_MAX, SCHEDULE_TOPIC

TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Where messages wait that are to be delivered at a time."""
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Where messages wait until their transaction ends."""
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Which transactions have ended."""
CHECKED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Where messages are put whose producers were asked too often."""

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
DEAD_LETTER_PREFIX = "%DLQ%"
"""Of the topics of groups' dead letters, which the store makes."""
LIGHT_QUEUE_PREFIX = "%LMQ%"
"""Of RocketMQ's light queues (4.9.3 and later), whose units are of records of other topics; no list has them."""
SYSTEM_TOPICS = (
    TopicConfig(name=HALF_TOPIC, read_queue_count=1, write_queue_count=1),
    TopicConfig(name=OP_TOPIC, read_queue_count=1, write_queue_count=1),
    TopicConfig(name=SCHEDULE_TOPIC, read_queue_count=DELAY_LEVEL_MAX, write_queue_count=DELAY_LEVEL_MAX),
    TopicConfig(name=TIMER_TOPIC, read_queue_count=1, write_queue_count=1),
)
"""What every store has, sorted by name."""

STATE_TOPIC = "rmq_sys_reput_state"
"""Where the store keeps what must survive a lost Indexer (docs/formats/state_record.md). A replicated one has it."""
STATE_QUEUE_ID = 0
DELIVERY_TOPIC = "rmq_sys_reput_delivery"
"""What became of the messages of consumer groups (docs/formats/delivery_record.md). A store with a Delivery has it."""
DELIVERY_QUEUE_ID = 0
DELIVERY_GROUP = DELIVERY_TOPIC
"""The group whose consumer offset in the journal's queue is where the journal's last copy begins."""
DELIVERY_LEFT_QUEUE_ID = 1
"""A queue that the journal does not have. The group's consumer offset there is the queue offset, in the journal's
queue, of the record with which a Delivery left the journal in order."""
INTERNAL_TOPICS = (HALF_TOPIC, OP_TOPIC, CHECKED_TOPIC, DELIVERY_TOPIC, STATE_TOPIC, TIMER_TOPIC)
"""Topics that the services of the store alone append to, by AppendState, which makes them. What others append comes to
some of them too, when it has to wait."""

_MADE_PREFIXES = ("%", "RMQ_SYS_", SYSTEM_TOPIC_PREFIX, "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC", "TBW102")
SYSTEM_NAMES = frozenset([CHECKED_TOPIC, *(topic.name for topic in SYSTEM_TOPICS)])


def is_system_topic(name: str) -> bool:
    """Return whether the store itself needs the topic. Nobody else appends to it, changes it or deletes it."""
    return name in SYSTEM_NAMES or name.startswith(SYSTEM_TOPIC_PREFIX)


def is_made_by_store(name: str) -> bool:
    """Return whether RocketMQ's broker makes the topic by itself, so that a list of topics may lack it."""
    return name in SYSTEM_NAMES or name.startswith(_MADE_PREFIXES)
