# SPDX-License-Identifier: Apache-2.0
"""The decision about a subject, an action and a resource."""

import pytest

from libs.runtime.trust.rights.rules import (
    ANONYMOUS,
    ANY,
    CACHE_COUNT_MAX,
    STORE,
    Action,
    Kind,
    Names,
    Resource,
    Rights,
    Rule,
    Subject,
)


def rule(
    verb: str, actions: Action, *, subjects: str = "a", topics: str = "", groups: str = "", store: bool = False
) -> Rule:
    return Rule(
        place=f"rule {verb}",
        subjects=Names.of(subjects.split()),
        is_denial=verb == "deny",
        actions=actions,
        topics=Names.of(topics.split()),
        groups=Names.of(groups.split()),
        has_store=store,
    )


def may(rules: list[Rule], actions: Action, resource: Resource, subject: str = "a") -> bool:
    return Rights(rules).subject(subject).decide(actions, resource).is_allowed


def topic(name: str) -> Resource:
    return Resource(Kind.TOPIC, name)


def group(name: str) -> Resource:
    return Resource(Kind.GROUP, name)


def test_without_a_rule_the_answer_is_no() -> None:
    """Rights are denied by default."""
    verdict = Rights([]).subject("a").decide(Action.QUERY, topic("t"))
    assert (verdict.is_allowed, verdict.rule, verdict.reason) == (False, None, "no rule allows it")


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders-1", False),
        ("orders", "Orders", False),
        ("orders-*", "orders-1", True),
        ("orders-*", "orders-", True),
        ("orders-*", "orders", False),
        ("*", "anything", True),
    ],
)
def test_names_are_exact_or_prefixes(pattern: str, name: str, expected: bool) -> None:
    """A star at the end makes a prefix, of topics, groups and subjects."""
    assert may([rule("allow", Action.PRODUCE, topics=pattern)], Action.PRODUCE, topic(name)) is expected
    assert may([rule("allow", Action.PRODUCE, groups=pattern)], Action.PRODUCE, group(name)) is expected
    assert not may([rule("allow", Action.PRODUCE, topics=pattern)], Action.PRODUCE, group(name)), "another kind"
    assert (
        may([rule("allow", Action.PRODUCE, subjects=pattern, topics="t")], Action.PRODUCE, topic("t"), name) is expected
    )


def test_a_denial_has_priority_in_any_order() -> None:
    """The order of rules has no meaning."""
    rules = [rule("allow", ANY, topics="*"), rule("deny", Action.PRODUCE, topics="secret-*")]
    for ordered in (rules, rules[::-1]):
        assert may(ordered, Action.PRODUCE, topic("open"))
        assert not may(ordered, Action.PRODUCE, topic("secret-1"))
        assert may(ordered, Action.QUERY, topic("secret-1"))
        verdict = Rights(ordered).subject("a").decide(Action.PRODUCE, topic("secret-1"))
        assert verdict.reason == "the rule in rule deny denies it"


def test_a_method_needs_any_of_its_actions() -> None:
    """A denial of one action takes no other action away."""
    rules = [rule("allow", Action.CONSUME, topics="t"), rule("deny", Action.QUERY, topics="t")]
    assert may(rules, Action.CONSUME | Action.QUERY, topic("t"))
    assert not may(rules, Action.PRODUCE | Action.QUERY, topic("t"))


def test_a_star_allows_named_subjects_and_denies_all() -> None:
    """Callers without a name are allowed only what a rule for `anonymous` allows, and `*` denies them, too."""
    rules = [rule("allow", Action.QUERY, subjects="*", topics="t")]
    assert may(rules, Action.QUERY, topic("t"), "somebody")
    assert not may(rules, Action.QUERY, topic("t"), ANONYMOUS)
    rules = [rule("allow", Action.QUERY, subjects=ANONYMOUS, topics="*"), rule("deny", ANY, subjects="*", topics="u")]
    assert may(rules, Action.QUERY, topic("t"), ANONYMOUS)
    assert not may(rules, Action.QUERY, topic("u"), ANONYMOUS)


@pytest.mark.parametrize("prefix", ["%DLQ%", "%RETRY%"])
def test_the_topics_of_a_group_are_the_groups(prefix: str) -> None:
    """To append dead letters is to administer the group; a rule for all topics gives no right to them."""
    assert not may([rule("allow", ANY, topics="*")], Action.PRODUCE, topic(f"{prefix}g"))
    assert not may([rule("allow", Action.PRODUCE, groups="g")], Action.PRODUCE, topic(f"{prefix}g"))
    assert may([rule("allow", Action.ADMINISTER, groups="g")], Action.PRODUCE, topic(f"{prefix}g"))
    assert may([rule("allow", Action.CONSUME, groups="g")], Action.CONSUME, topic(f"{prefix}g"))
    assert not may([rule("allow", Action.CONSUME, groups="g")], Action.CONSUME, topic(f"{prefix}h"))


@pytest.mark.parametrize(
    "name", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_x"]
)
def test_the_topics_of_the_store_are_the_stores(name: str) -> None:
    """They hold messages of all topics, so a denial for a topic would have a way around otherwise."""
    assert not may([rule("allow", ANY, topics=f"* {name}")], Action.QUERY, topic(name))
    assert may([rule("allow", Action.QUERY, store=True)], Action.QUERY, topic(name))
    assert not may([rule("allow", Action.QUERY, store=True)], Action.QUERY, topic("t")), "the store is no topic"
    assert not may([rule("allow", ANY, topics="*", groups="*")], Action.ADMINISTER, STORE)


def test_a_trusted_subject_may_do_all() -> None:
    """Services and operators need no rules."""
    assert Subject("service", is_trusted=True).decide(Action.ADMINISTER, STORE).is_allowed


def test_the_memory_of_answers_is_bounded() -> None:
    """A caller that asks for ever new names, or for very long names, takes no memory beyond the bound."""
    subject = Rights([rule("allow", Action.QUERY, topics="t*")]).subject("a")
    for number in range(CACHE_COUNT_MAX + 10):
        assert subject.decide(Action.QUERY, topic(f"t{number}")).is_allowed
    assert subject.known_count <= CACHE_COUNT_MAX
    count = subject.known_count
    assert subject.decide(Action.QUERY, topic("t" * 256)).is_allowed
    assert subject.known_count == count
