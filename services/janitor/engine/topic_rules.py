# SPDX-License-Identifier: Apache-2.0
"""TopicRules: topics with a rule of retention of their own. What expires by the rules, and which segments they hold.

A look asks the Indexer for each topic. Expired messages are taken away from readers at once: the CommitLog raises the
begin of the topic. Segments are the policy's business: the first record that a longer rule keeps is a Hold.
Invariants: a begin only rises, so an earlier look holds more segments than a later one. While the Indexer can't answer
for a topic with a longer rule, the topic holds all segments.
Callers: RetentionLoop, one call at a time. Memory: a state for each topic with a rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from libs.requests.errors import DependencyUnavailable
from services.janitor.engine.facts import Expiry, Hold, TopicRule
from services.janitor.engine.owners import IndexOwner, LogOwner

HOUR_MS = 3_600_000
SHOWN_COUNT_MAX = 1_000
"""Most topics in an answer."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic with its rule, and what the rule lets expire."""

    rule: TopicRule
    is_longer: bool
    """Whether the rule keeps messages longer than the policy."""
    expiry: Expiry = field(default_factory=Expiry)
    error: str = ""
    """Why the Indexer can't answer, empty if it can."""


def replaced(rules: Sequence[TopicRule], rule: TopicRule) -> list[TopicRule]:
    """Return the rules with this rule in place of the topic's own, by name."""
    return sorted([*(one for one in rules if one.topic != rule.topic), rule], key=lambda one: one.topic)


def hold_of(states: Sequence[TopicState]) -> Hold | None:
    """Return the first record that a longer rule keeps, None without one."""
    holds = [
        Hold(state.expiry.begin_physical_offset, state.rule.topic, state.rule.retention_hours)
        for state in states
        if state.is_longer and (state.error or state.expiry.kept_message_count)
    ]
    return min(holds, key=lambda one: one.physical_offset, default=None)


def begins_of(states: Sequence[TopicState]) -> dict[str, int]:
    """Return the begins of the topics that have expired messages."""
    return {one.rule.topic: one.expiry.begin_physical_offset for one in states if one.expiry.expired_message_count}


class TopicRules:
    """The topics with a rule of their own, as of the last look."""

    def __init__(self, log: LogOwner, index: IndexOwner, *, interval_ms: int) -> None:
        self.states: Sequence[TopicState] = ()
        self.expired_message_count = 0
        """Messages that `expire` took away from readers."""
        self._log, self._index, self._interval_ms = log, index, interval_ms
        self._rules: Sequence[TopicRule] = ()
        self._looked_ms: float = float("-inf")
        self._looked_hours = -1

    async def look(self, now_ms: int, retention_hours: int, *, is_new: bool = False) -> Sequence[TopicState]:
        """Return the states of the topics. They are asked for again after the interval and after a change of a rule.

        `is_new`: ask in any case. Raises DependencyUnavailable if the CommitLog can't tell the rules.
        """
        rules = await self._log.topic_rules()
        is_same = rules == self._rules and retention_hours == self._looked_hours
        if is_new or not is_same or not 0 <= now_ms - self._looked_ms < self._interval_ms:
            self.states = await self.states_of(rules, now_ms, retention_hours)
            self._rules, self._looked_ms, self._looked_hours = rules, now_ms, retention_hours
        return self.states

    async def trial(self, rule: TopicRule | None, now_ms: int, retention_hours: int) -> Sequence[TopicState]:
        """Return the states as they would be with another rule for a topic. Keeps nothing."""
        rules = await self._log.topic_rules()
        return await self.states_of(rules if rule is None else replaced(rules, rule), now_ms, retention_hours)

    async def states_of(self, rules: Sequence[TopicRule], now_ms: int, retention_hours: int) -> list[TopicState]:
        """Ask the Indexer about each topic."""
        states = []
        for rule in rules:
            is_longer, hours = rule.retention_hours > retention_hours, rule.retention_hours
            try:
                expiry = await self._index.expiry(rule, now_ms - hours * HOUR_MS if hours else None)
                states.append(TopicState(rule, is_longer, expiry))
            except DependencyUnavailable as error:
                states.append(TopicState(rule, is_longer, error=str(error)))
        return states

    async def expire(self) -> None:
        """Take the expired messages of the last look away from readers. Raises DependencyUnavailable."""
        if begins := begins_of(self.states):
            await self._log.expire(begins)
            self.expired_message_count += sum(one.expiry.expired_message_count for one in self.states)
            self._looked_ms = float("-inf")
