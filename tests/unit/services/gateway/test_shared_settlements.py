# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements and changes of invisible times of many callers share calls to Delivery, each with its outcome."""

import asyncio
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as Detail
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from reput.delivery.v1 import delivery_service_pb2 as pb

from services.gateway.errors import Refused
from services.gateway.rpc.store.delivery_client import DeliveryClient

OUTDATED, BURIED = "outdated", "buried"


class Delivery:
    """Answers settlements: a new handle for an extension, an error for the handle OUTDATED."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    async def call(self, _stub: object, method: str, request: pb.SettleRequest) -> pb.SettleResponse:
        """See LeaderClient."""
        assert method == "Settle"
        self.calls.append([entry.handle for entry in request.entries])
        await asyncio.sleep(0)
        return pb.SettleResponse(outcomes=map(self._outcome, request.entries))

    def _outcome(self, entry: pb.SettleEntry) -> pb.SettleOutcome:
        if entry.handle == OUTDATED:
            detail = Detail()
            detail.Pack(ErrorInfo(reason="HANDLE_OUTDATED", domain="reput"))
            return pb.SettleOutcome(error=Status(code=5, message="gone", details=[detail]))
        return pb.SettleOutcome(handle=f"{entry.handle}+" if entry.HasField("extend") else "")


async def test_they_share_a_call() -> None:
    """Of a turn of the event loop; a burial, which reads its message first, has a call of its own."""
    delivery = Delivery()
    client = DeliveryClient(delivery)  # type: ignore[arg-type]
    works: list[Any] = [
        client.ack(["a", "b"]),
        client.change(pb.SettleEntry(handle="c", extend=pb.Extend())),
        client.change(pb.SettleEntry(handle="d", nack=pb.Nack())),
        client.change(pb.SettleEntry(handle=OUTDATED, extend=pb.Extend())),
        client.ack(["e"]),
        client.bury(pb.SettleEntry(handle=BURIED, bury=pb.Bury())),
    ]
    found = await asyncio.gather(*works, return_exceptions=True)
    assert sorted(delivery.calls) == [["a", "b", "c", "d", OUTDATED, "e"], [BURIED]]
    refused = found.pop(3)
    assert isinstance(refused, Refused)
    assert found == [["", ""], "c+", "", [""], None]


async def test_a_single_change_is_refused_with_its_reason() -> None:
    """The error of an entry is the error of its caller."""
    client = DeliveryClient(Delivery())  # type: ignore[arg-type]
    with pytest.raises(Refused):
        await client.change(pb.SettleEntry(handle=OUTDATED, nack=pb.Nack()))
