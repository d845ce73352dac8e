# SPDX-License-Identifier: Apache-2.0
"""DeliveryConfig: every setting of Delivery, with its unit. Values only: bounds are checked at loading."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from libs.formats.errors import FormatError
from libs.formats.records.delay_level import DELAY_LEVELS_TEXT, parse_levels
from libs.importance import Advanced, Basic

Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryConfig:
    """Settings of the Delivery service. It has no disk of its own: its state is in the log."""

    open_count_max: Basic[Positive] = 1_000_000
    """Messages of all groups that are in flight, or wait for the next attempt or for a message before them, at once;
    some 300 bytes each."""

    queue_open_count_max: Advanced[Positive] = 10_000
    """The same for a group in a queue: at this limit no new message of the queue is delivered until some are
    settled."""

    subscription_count_max: Advanced[Positive] = 1_000
    """Groups that receive at once, counted once for each of their topics. Each reads its queues ahead, up to 1 MiB and
    a message for each queue, all together up to 128 MiB."""

    group_queue_count_max: Advanced[Positive] = 500_000
    """Queues in which a group has a place, over all groups, and groups with a policy of their own; a kilobyte each.
    Further queues and groups are refused with WINDOW_FULL until groups are deleted."""

    receive_count_max: Advanced[Positive] = 1_000
    """Most messages of a receive."""

    delayed_count_max: Basic[Positive] = 5_000_000
    """Messages that wait for their time at once, some 30 bytes each. Further messages are read after others were
    delivered, and may be late."""

    delayed_roll_hours: Basic[Annotated[int, Meta(ge=1, le=960)]] = 12
    """A message that waits longer is appended once more, so that retention does not delete it. Less than half of
    retention_hours of the Janitor."""

    message_delay_level: Advanced[str] = DELAY_LEVELS_TEXT
    """The CommitLog's setting of this name: the delays of the levels, from the store time on. A change also applies to
    waiting messages. Messages of a level that is missing here wait until it has a delay again."""

    transaction_first_check_ms: Advanced[Positive] = 6_000
    """Age of a transaction at which its producer is first asked for its end, in milliseconds, unless its message has
    another time (CHECK_IMMUNITY_TIME_IN_SECONDS). RocketMQ's transactionTimeOut."""

    transaction_check_interval_ms: Advanced[Positive] = 30_000
    """Time that a producer has to answer before the next producer is asked, in milliseconds."""

    transaction_check_count_max: Advanced[Positive] = 15
    """Number of times that producers are asked; then the message is moved to the topic TRANS_CHECK_MAX_TIME_TOPIC."""

    transaction_count_max: Advanced[Positive] = 100_000
    """Transactions that are open at once, some 700 bytes each. Further transactions wait in the log until others
    end."""

    shards_file: Basic[Path | None] = None
    """The gateway's file that names the shards, if this store is a shard. An ordered group finishes sealed queues of
    other shards before their successors here: their Deliveries are asked, with the settings of the connection to the
    CommitLog. Read once, at the start."""

    reconnect_ms_max: Advanced[Positive] = 2_000
    """Longest wait between two attempts to reach the CommitLog or the Indexer, in milliseconds."""

    journal_skip_below: Advanced[NotNegative] = 0
    """Records of the journal below this queue offset that this version can't read are skipped. Messages that such a
    record acknowledges are delivered again. Without it Delivery refuses all calls, and a log line names the record."""

    def __post_init__(self) -> None:
        """Refuse delay levels that can't be read."""
        try:
            self.delay_levels_ms()
        except FormatError as error:
            raise ValueError(f"message_delay_level: {error.reason}") from None

    def delay_levels_ms(self) -> tuple[int, ...]:
        """Return the delays of the levels in milliseconds, level 1 first."""
        return parse_levels(self.message_delay_level)
