# SPDX-License-Identifier: Apache-2.0
"""Callers can't use the groups whose positions are Delivery's own progress."""

import asyncio

import pytest
from reput.delivery.v1 import delivery_service_pb2 as delivery_pb
from reput.delivery.v1 import group_service_pb2 as pb

from libs.formats.state.system_topics import OWN_GROUPS
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import BadArgument
from services.delivery.engine.delays import level as level_module
from services.delivery.rpc.delivery_servicer import DeliveryServicer
from services.delivery.rpc.group_servicer import GroupServicer
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import eventually


@pytest.mark.parametrize("group", sorted(OWN_GROUPS))
async def test_they_are_refused(monkeypatch: pytest.MonkeyPatch, group: str) -> None:
    """No receive, move, policy or deletion takes such a group, so a delivered message is not delivered again."""
    monkeypatch.setattr(level_module, "PAUSE_S_MAX", 0.01)
    store, clock = MemoryStore(queue_count=1), ManualClock()
    await store.levels.send(1, "1", clock.now_ms())
    clock.advance(1_000)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await eventually(lambda: store.levels.delivered == [("t", 0, "1")])
        servicer = GroupServicer(owner, store, store)
        calls = (
            DeliveryServicer(owner, receive_count_max=1).Receive(
                delivery_pb.ReceiveRequest(group=group, topic="t"), None
            ),
            servicer.ResetGroup(pb.ResetGroupRequest(group=group, topic="t", earliest=True), None),
            servicer.SetGroup(pb.SetGroupRequest(group=group), None),
            servicer.DeleteGroup(pb.DeleteGroupRequest(group=group), None),
            servicer.GetGroup(pb.GetGroupRequest(group=group), None),
        )
        for call in calls:
            with pytest.raises(BadArgument, match="is a group of the store itself"):
                await call
        await eventually(lambda: engine.groups.levels == {0: 1})
        assert engine.groups.names() == []
        await asyncio.sleep(0.05)
    assert len(store.levels.delivered) == 1
