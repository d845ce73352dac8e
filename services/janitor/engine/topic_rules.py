# SPDX-License-Identifier: Apache-2.0
"""TopicRules: the topics with a retention of their own. Finds their expired messages and the segments that they hold.

A look asks the Indexer for the expired messages of each topic. `expire` then hides these messages from readers: the
CommitLog raises the begin of the topic. The policy decides about segments; a Hold tells it the first record that a
topic keeps for longer than the policy.
Invariants: a begin only rises, so a Hold of an earlier look keeps at least the segments that a later Hold keeps. While
the Indexer can't answer for a topic with a longer retention, the topic holds all segments. A message is counted once,
also if the Indexer has not yet heard of the last begin, and also if an expiry is repeated.
Callers: RetentionLoop, one call at a time. Memory: a state for each topic with a retention of its own.
"""

from collections.abc import Sequence

from msgspec import Struct, field

from libs.requests.errors import DependencyUnavailable
from services.janitor.engine.facts import Expiry, Hold, TopicRule
from services.janitor.engine.owners import IndexOwner, LogOwner

HOUR_MS = 3_600_000
SHOWN_COUNT_MAX = 1_000
"""Most topics in an answer."""


class TopicState(Struct, frozen=True):
    """A topic with its rule, and the messages that expire by the rule."""

    rule: TopicRule
    is_longer: bool
    """Whether the rule keeps messages longer than the policy."""
    expiry: Expiry = field(default_factory=Expiry)
    error: str = ""
    """The reason why the Indexer can't answer, empty if it can."""


def replaced(rules: Sequence[TopicRule], rule: TopicRule) -> list[TopicRule]:
    """Return the rules, sorted by topic, with this rule in place of the present rule of its topic."""
    return sorted([*(one for one in rules if one.topic != rule.topic), rule], key=lambda one: one.topic)


def hold_of(states: Sequence[TopicState]) -> Hold | None:
    """Return the first record that a longer rule keeps, or None if no longer rule keeps a record."""
    holds = [
        Hold(state.expiry.begin_physical_offset, state.rule.topic, state.rule.retention_hours)
        for state in states
        if state.is_longer and (state.error or state.expiry.kept_message_count)
    ]
    return min(holds, key=lambda one: one.physical_offset, default=None)


def begins_of(states: Sequence[TopicState]) -> dict[str, int]:
    """Return the begins of the topics with expired messages: the physical offset of the first message that stays."""
    return {one.rule.topic: one.expiry.begin_physical_offset for one in states if one.expiry.expired_message_count}


class TopicRules:
    """The topics with a retention of their own, as of the last look."""

    def __init__(self, log: LogOwner, index: IndexOwner, *, interval_ms: int) -> None:
        self.states: Sequence[TopicState] = ()
        self.expired_message_count = 0
        """Messages that `expire` has hidden from readers."""
        self._counted: dict[str, Expiry] = {}
        """The last expiry of each topic that was counted."""
        self._log, self._index, self._interval_ms = log, index, interval_ms
        self._rules: Sequence[TopicRule] = ()
        self._looked_ms: float = float("-inf")
        self._looked_hours = -1

    async def look(self, now_ms: int, retention_hours: int, *, is_new: bool = False) -> Sequence[TopicState]:
        """Return the states of the topics, from the last look or from a new look.

        A look is made after the interval, after a change of a rule, after an expiry, and in each call with `is_new`.
        Raises DependencyUnavailable if the CommitLog can't return the rules.
        """
        rules = await self._log.topic_rules()
        is_same = rules == self._rules and retention_hours == self._looked_hours
        if is_new or not is_same or not 0 <= now_ms - self._looked_ms < self._interval_ms:
            self.states = await self.states_of(rules, now_ms, retention_hours)
            self._rules, self._looked_ms, self._looked_hours = rules, now_ms, retention_hours
            names = {rule.topic for rule in rules}
            self._counted = {topic: expiry for topic, expiry in self._counted.items() if topic in names}
        return self.states

    async def trial(self, rule: TopicRule | None, now_ms: int, retention_hours: int) -> Sequence[TopicState]:
        """Return the states as they would be with another rule for a topic. The kept states do not change.

        The state of this topic has the groups that have not read all messages that would expire.
        """
        rules = await self._log.topic_rules()
        tried = rules if rule is None else replaced(rules, rule)
        return await self.states_of(tried, now_ms, retention_hours, asked=rule)

    async def states_of(
        self, rules: Sequence[TopicRule], now_ms: int, retention_hours: int, *, asked: TopicRule | None = None
    ) -> list[TopicState]:
        """Ask the Indexer about each topic, and for the groups that miss messages by the rule `asked`."""
        states = []
        for rule in rules:
            is_longer, hours = rule.retention_hours > retention_hours, rule.retention_hours
            try:
                oldest_ms = now_ms - hours * HOUR_MS if hours else None
                expiry = await self._index.expiry(rule, oldest_ms, with_consumers=rule == asked)
                states.append(TopicState(rule, is_longer, expiry))
            except DependencyUnavailable as error:
                states.append(TopicState(rule, is_longer, error=str(error)))
        return states

    async def expire(self) -> None:
        """Hide the expired messages of the last look from readers. Raises DependencyUnavailable."""
        if begins := begins_of(self.states):
            await self._log.expire(begins)
            for state in self.states:
                if state.rule.topic in begins:
                    self.expired_message_count += self._uncounted(state.rule.topic, state.expiry)
            self._looked_ms = float("-inf")

    def _uncounted(self, topic: str, expiry: Expiry) -> int:
        """Return the number of expired messages that were not counted before, and note them as counted.

        An Indexer that has not yet heard of a begin counts the messages below this begin again.
        """
        before = self._counted.get(topic, Expiry())
        self._counted[topic] = expiry
        if expiry.shown_physical_offset >= before.begin_physical_offset:
            return expiry.expired_message_count
        return max(0, expiry.expired_message_count - before.expired_message_count)
