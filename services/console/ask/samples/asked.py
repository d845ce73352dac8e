# SPDX-License-Identifier: Apache-2.0
"""Asked: the last answers about groups that share messages, and which of them a sample may take once more.

A call for each group is most of the cost of a sample. A group that has not moved between two calls, whose topics have
got no messages since, and whose stored offsets are the same, is asked in each sixth sample.

Callers: the event loop. Memory: the groups of the last sample.
"""

from collections.abc import Hashable, Iterable, Mapping

from msgspec import Struct
from reput_client import ShareGroup

AGE_S_MAX = 55.0
"""An older answer is not taken again: a sample begins every 10 s."""


class Answer(Struct, frozen=True, eq=False):
    """An answer about a group."""

    group: ShareGroup
    asked_s: float
    news: Hashable
    """The state that a sample has without asking the group: the ends of its topics, and its stored offsets."""
    is_still: bool
    """The answer before had the same positions."""


class Asked:
    """The last answers about groups."""

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}

    def still(self, names: Iterable[str], news: Mapping[str, Hashable], now_s: float) -> dict[str, Answer]:
        """Return the answers of the groups that need not be asked."""
        found = {}
        for name in names:
            known = self._answers.get(name)
            if known is None or not known.is_still or known.news != news.get(name):
                continue
            if now_s - known.asked_s <= AGE_S_MAX:
                found[name] = known
        return found

    def put(self, groups: Mapping[str, ShareGroup], news: Mapping[str, Hashable], now_s: float) -> dict[str, Answer]:
        """Keep the answers of a sample and of young earlier samples, and forget all others. Returns the new answers."""
        answers = {}
        for name, group in groups.items():
            before = self._answers.get(name)
            is_still = before is not None and positions_of(before.group) == positions_of(group)
            answers[name] = Answer(group, now_s, news.get(name), is_still)
        young = {name: one for name, one in self._answers.items() if now_s - one.asked_s <= AGE_S_MAX}
        self._answers = young | answers
        return answers


def positions_of(group: ShareGroup) -> Hashable:
    """Return the positions of a group, without values that change with time alone."""
    return tuple(
        (
            one.topic, one.queue_id, one.committed_queue_offset, one.next_queue_offset, one.max_queue_offset, one.lag,
            one.in_flight_count, one.held_count, one.waiting_count,
        )
        for one in group.queues
    )  # fmt: skip
