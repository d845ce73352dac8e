# SPDX-License-Identifier: Apache-2.0
"""Rights: whether a subject may do an action with a resource, by rules that allow and deny.

A rule that denies has priority over all rules that allow, so the order of the rules has no meaning. Without a rule the
answer is no. `*` at the end of a name makes it a prefix. No I/O.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from libs.formats.state.system_topics import DEAD_LETTER_PREFIX, is_system_topic
from libs.runtime.trust.rights.quota import Quota

RETRY_PREFIX = "%RETRY%"
"""Prefix of RocketMQ's topics of a group's repeated messages."""

ANONYMOUS = "anonymous"
"""The subject of callers that show no credential of a subject."""

CACHE_COUNT_MAX, CACHE_NAME_SIZE_MAX = 10_000, 255
"""Answers that are kept for each subject, and the longest name of their resources. Callers choose the names."""


class Action(enum.IntFlag):
    """The actions that rules name. A value may combine several actions, of which a method needs any.

    Numbers, as the kinds are texts: verdicts are found by them, and the hash of other enumerations costs ten times.
    """

    PRODUCE = enum.auto()
    CONSUME = enum.auto()
    QUERY = enum.auto()
    ADMINISTER = enum.auto()

    @property
    def text(self) -> str:
        """The names of the actions, as in a sentence. `use` stands for any action."""
        return "use" if self == ANY else " or ".join(str(one.name).lower() for one in self)


ANY = Action.PRODUCE | Action.CONSUME | Action.QUERY | Action.ADMINISTER


class Kind(enum.StrEnum):
    """The kinds of resources."""

    TOPIC = "topic"
    GROUP = "group"
    STORE = "store"


class Resource(NamedTuple):
    """A topic, a group, or the store itself, which has no name."""

    kind: Kind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}" if self.name else f"the {self.kind.value}"


STORE = Resource(Kind.STORE)


class Asked(NamedTuple):
    """A question: any of these actions with this resource."""

    actions: Action
    resource: Resource

    def plain(self) -> "Asked":
        """Return the question with the resource to which the rules apply.

        The topics of a group's repeated messages and dead letters are the group's: to append to them is to administer
        the group. The topics of the store itself hold messages of all topics, so they are the store's.
        """
        kind, name = self.resource
        if kind is not Kind.TOPIC:
            return self
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
            if name.startswith(prefix):
                actions = self.actions
                if actions is Action.PRODUCE:
                    actions = Action.ADMINISTER
                return Asked(actions, Resource(Kind.GROUP, name.removeprefix(prefix)))
        return Asked(self.actions, STORE) if is_system_topic(name) else self


class Names(Struct, frozen=True):
    """A set of names: exact names, and prefixes."""

    exact: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, patterns: Iterable[str]) -> "Names":
        """Return the set of some patterns. A pattern that ends in `*` is a prefix."""
        given = list(patterns)
        exact = frozenset(name for name in given if not name.endswith("*"))
        return cls(exact, tuple(name.removesuffix("*") for name in given if name.endswith("*")))

    def __contains__(self, name: str) -> bool:
        return name in self.exact or name.startswith(self.prefixes)


class Rule(Struct, frozen=True, kw_only=True):
    """A rule: it allows or denies some subjects some actions with some resources."""

    place: str
    """The place of the rule for users: its line."""
    subjects: Names
    is_denial: bool
    actions: Action
    topics: Names = Names()
    groups: Names = Names()
    has_store: bool = False

    def covers(self, subject: str) -> bool:
        """Return whether the rule is about a subject. A rule that allows has to name `anonymous` exactly."""
        if subject == ANONYMOUS and not self.is_denial:
            return subject in self.subjects.exact
        return subject in self.subjects

    def has(self, resource: Resource) -> bool:
        """Return whether the rule is about a resource."""
        if resource.kind is Kind.STORE:
            return self.has_store
        return resource.name in (self.topics if resource.kind is Kind.TOPIC else self.groups)


class Verdict(NamedTuple):
    """An answer, with the rule that decided. No rule: no rule allows it."""

    is_allowed: bool
    rule: Rule | None

    @property
    def reason(self) -> str:
        """The reason, for users."""
        if self.rule is None:
            return "no rule allows it"
        return f"the rule in {self.rule.place} {'allows' if self.is_allowed else 'denies'} it"


class Subject:
    """A caller: its name and its rights. A trusted subject, as a service of the store, may do all."""

    def __init__(self, name: str, rules: Sequence[Rule] = (), *, is_trusted: bool = False) -> None:
        self.name = name
        self.is_trusted = is_trusted
        self.quota: Quota | None = None
        """The use of the service by the subject. None: it has no quota."""
        self._rules = [rule for rule in rules if rule.covers(name)]
        self._known: dict[tuple[Action, Resource], Verdict] = {}

    @property
    def known_count(self) -> int:
        """Number of answers that are kept."""
        return len(self._known)

    def decide(self, actions: Action, resource: Resource) -> Verdict:
        """Decide whether the subject may do any of the actions with a resource."""
        if self.is_trusted:
            return Verdict(True, None)
        verdict = self._known.get((actions, resource))
        if verdict is None:
            verdict = self._decided(*Asked(actions, resource).plain())
            if len(self._known) >= CACHE_COUNT_MAX:
                self._known.clear()
            if len(resource.name) <= CACHE_NAME_SIZE_MAX:
                self._known[actions, resource] = verdict
        return verdict

    def _decided(self, actions: Action, resource: Resource) -> Verdict:
        found = [self._of_one(action, resource) for action in actions]
        allowed = next((verdict for verdict in found if verdict.is_allowed), None)
        return allowed or next((verdict for verdict in found if verdict.rule is not None), found[0])

    def _of_one(self, action: Action, resource: Resource) -> Verdict:
        allowing: Rule | None = None
        for rule in self._rules:
            if action in rule.actions and rule.has(resource):
                if rule.is_denial:
                    return Verdict(False, rule)
                allowing = allowing or rule
        return Verdict(allowing is not None, allowing)


@dataclass(frozen=True)
class Rights:
    """The rules of a file."""

    rules: Sequence[Rule]

    def subject(self, name: str) -> Subject:
        """Return a subject with its rights."""
        return Subject(name, self.rules)

    @cached_property
    def anonymous(self) -> Subject:
        """The subject of callers without a credential."""
        return self.subject(ANONYMOUS)
