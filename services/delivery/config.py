# SPDX-License-Identifier: Apache-2.0
"""DeliveryConfig: every setting of Delivery, with its unit. Values only; bounds are checked when they are loaded."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryConfig:
    """Settings of the Delivery service. It keeps nothing on a disk of its own: what it knows is in the log."""

    open_count_max: Positive = 1_000_000
    """Messages of all groups that are in flight, or wait for the next attempt or for one before them, at once; some 300
    bytes each."""

    queue_open_count_max: Positive = 10_000
    """The same of one group in one queue: then nothing new of that queue is delivered until some are settled."""

    subscription_count_max: Positive = 1_000
    """Groups that receive at once, counted once for each of their topics. Each reads its queues ahead, up to 1 MiB and
    a message for each queue, all together up to 128 MiB."""

    group_queue_count_max: Positive = 500_000
    """Queues in which a group has a place, over all groups, and groups with a policy of their own; a kilobyte each.
    Further ones are refused with WINDOW_FULL until groups are deleted."""

    receive_count_max: Positive = 1_000
    """Messages of one receive."""

    delayed_count_max: Positive = 5_000_000
    """Messages that wait for their time at once, some 30 bytes each. Further ones are seen once others were delivered,
    and may be late."""

    delayed_roll_hours: Annotated[int, Meta(ge=1, le=960)] = 12
    """A message that waits longer is appended once more, so that retention leaves it. Less than half of
    retention_hours of the Janitor."""

    transaction_first_check_ms: Positive = 6_000
    """How old a transaction is when its producer is asked how it ends, unless its message says another time
    (CHECK_IMMUNITY_TIME_IN_SECONDS), in milliseconds. RocketMQ's transactionTimeOut."""

    transaction_check_interval_ms: Positive = 30_000
    """How long a producer has to answer before the next one is asked, in milliseconds."""

    transaction_check_count_max: Positive = 15
    """How often producers are asked; then the message goes to the topic TRANS_CHECK_MAX_TIME_TOPIC."""

    transaction_count_max: Positive = 100_000
    """Transactions that are open at once, some 700 bytes each. Further ones wait in the log until others end."""

    reconnect_ms_max: Positive = 2_000
    """Longest wait between two attempts to reach the CommitLog or the Indexer, in milliseconds."""

    journal_skip_below: NotNegative = 0
    """Records of the journal below this queue offset that this version can't read are skipped. Messages that such a
    record acknowledges are delivered again. Without it Delivery refuses all calls, and a log line names the record."""
