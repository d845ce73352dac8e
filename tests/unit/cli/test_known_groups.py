# SPDX-License-Identifier: Apache-2.0
"""Groups that share messages, as the command line requests them."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from reput_client import ConsumerOffset, NotFoundError

from cli.commands.groups import known
from libs.formats.state.system_topics import OWN_GROUPS
from tests.support.patience import LIMIT_S


class Calls:
    """Answers calls for groups when the expected number of calls has arrived."""

    def __init__(self, count_at_once: int) -> None:
        self.barrier = threading.Barrier(count_at_once)

    def list(self) -> list[Any]:
        return [SimpleNamespace(name=f"g{number}") for number in range(2 * known.CALLS_AT_ONCE)]

    def get(self, name: str) -> Any:
        self.barrier.wait(LIMIT_S)
        if name == "g3":
            raise NotFoundError("deleted meanwhile")
        return SimpleNamespace(name=name)


def test_groups_are_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups of a long list are requested in parallel, and a group that disappears meanwhile is left out."""
    monkeypatch.setattr(known, "has_delivery", lambda *_: True)
    client: Any = SimpleNamespace(share_groups=Calls(known.CALLS_AT_ONCE))
    found = known.sharing_groups(SimpleNamespace(), client, None)  # type: ignore[arg-type]
    assert list(found) == [f"g{number}" for number in range(2 * known.CALLS_AT_ONCE) if number != 3]


def test_groups_of_the_store_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are without the groups in which Delivery keeps its progress. By name their offsets are found.

    Delivery is not asked for such a group, because it would refuse the name.
    """
    monkeypatch.setattr(known, "has_delivery", lambda *_: True)
    offset = ConsumerOffset("SCHEDULE_TOPIC_XXXX", 0, 7)
    groups = [SimpleNamespace(name=name, offsets=[offset]) for name in ("billing", *OWN_GROUPS)]
    client: Any = SimpleNamespace(groups=SimpleNamespace(list=lambda: groups))
    assert list(known.offsets_of(client, None, {})) == [("billing", offset)]
    for name in OWN_GROUPS:
        assert known.sharing_groups(SimpleNamespace(), client, name) == {}  # type: ignore[arg-type]
        assert list(known.offsets_of(client, name, {})) == [(name, offset)]
