# SPDX-License-Identifier: Apache-2.0
"""The errors of Delivery: refused requests and failures, with their coordinates as attributes."""

from libs.requests.errors import BadArgument, DependencyUnavailable, ServiceError


class BadHandle(BadArgument):
    """A text is not a handle of any delivery."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, field="handle")


class HandleOutdated(ServiceError):
    """A handle is outdated: its message is settled, or was delivered again since."""

    def __init__(self, topic: str, queue_id: int, queue_offset: int) -> None:
        super().__init__(f"message {queue_offset} of {topic}/{queue_id} is settled, or was delivered again since")
        self.topic, self.queue_id, self.queue_offset = topic, queue_id, queue_offset


class GroupNotFound(ServiceError):
    """The group has neither a policy nor a position."""

    def __init__(self, group: str) -> None:
        super().__init__(f"there is no group {group}")
        self.group = group


class NotOwner(ServiceError):
    """This process has not read the journal yet, or the Delivery of the leading log serves the groups."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"deliveries are not served here now: {reason}")


class TransactionNotFound(ServiceError):
    """There is no transaction of this id."""

    def __init__(self, transaction_id: str) -> None:
        super().__init__(f"there is no transaction {transaction_id}, or its message is gone")
        self.transaction_id = transaction_id


class TransactionEnded(ServiceError):
    """The transaction has ended in another way. `ended_as` is "unknown" if the way is unknown."""

    def __init__(self, transaction_id: str, ended_as: str) -> None:
        super().__init__(f"transaction {transaction_id} has ended in another way: {ended_as or 'nobody knows how'}")
        self.transaction_id, self.ended_as = transaction_id, ended_as or "unknown"


class TransactionRefused(ServiceError):
    """The log does not take the message of a transaction, which stays open."""

    def __init__(self, transaction_id: str, why: str) -> None:
        super().__init__(f"transaction {transaction_id} can't be committed, and stays open: {why}")
        self.transaction_id = transaction_id


class DelayedNotFound(ServiceError):
    """No message with this id waits, or ever waited, for its time."""

    def __init__(self, topic: str, message_id: str) -> None:
        super().__init__(f"no message {message_id} of topic {topic} waits for its time")
        self.topic, self.message_id = topic, message_id


class DelayedTooLate(ServiceError):
    """The message was delivered before it could be cancelled."""

    def __init__(self, topic: str, message_id: str) -> None:
        super().__init__(f"it is too late to cancel message {message_id}: it was delivered to topic {topic}")
        self.topic, self.message_id = topic, message_id


class AppendRefused(ServiceError):
    """The log never takes these messages. Nothing was stored."""


class MessageDamaged(DependencyUnavailable):
    """Stored bytes of a message fail their check. Needs a replica or an operator; earlier messages are undamaged."""


class JournalLost(ServiceError):
    """It is unknown whether the journal has the last events, or another process writes it. The journal is read anew."""


class JournalNotDurable(JournalLost):
    """The log has the last events, but not as durably as it promises: a failover may undo them."""


class JournalUnreadable(ServiceError):
    """A record of the journal can't be decoded, so the acknowledgements in it are unknown."""

    def __init__(self, queue_offset: int, reason: str) -> None:
        super().__init__(
            f"the journal's record at queue offset {queue_offset} can't be read: {reason}; nothing is delivered, "
            f"because messages that it acknowledges would be delivered again; the setting journal_skip_below = "
            f"{queue_offset + 1} accepts that"
        )
        self.queue_offset = queue_offset


class Undeliverable(ServiceError):
    """A record of the schedule topic can't become a message of its topic."""

    def __init__(self, reason: str, queue_offset: int) -> None:
        super().__init__(f"the message at queue offset {queue_offset} can't be delivered: {reason}")
        self.queue_offset = queue_offset
