# SPDX-License-Identifier: Apache-2.0
"""ShardDoors: a door for each shard. The metadata `reput-shard` name the shard of a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc
from msgspec.structs import replace

from libs.requests.errors import BadArgument
from libs.runtime.rpc.errors import BASE_TABLE, STATUS_METADATA_KEY, code_of, status_of

if TYPE_CHECKING:
    from services.gateway.rpc.door.door import Door, DoorCalls, DoorHeld, DoorStatistics

SHARD_FIELD: Final = b"reput-shard"
SHOWN_SIZE_MAX: Final = 100
F = TypeVar("F", "DoorCalls", "DoorHeld", "DoorStatistics")


class ShardDoors(grpc.GenericRpcHandler):
    """The doors of the shards, by the names of the shards. A call to a service of a store must name its shard."""

    def __init__(self, doors: Mapping[str, Door]) -> None:
        self._doors = doors
        self._first = next(iter(doors.values()))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the handler of a call that goes on to a shard. None for a call to the gateway itself."""
        details: Any = handler_call_details
        name = next((value.decode("latin-1") for field, value in details.fields if field == SHARD_FIELD), "")
        if (door := self._doors.get(name)) is not None:
            return door.service(handler_call_details)
        return None if self._first.service(handler_call_details) is None else self._refusal(name)

    def calls(self) -> Mapping[tuple[str, ...], DoorCalls]:
        """Return the calls that have ended, by service and code, of all shards. From any thread."""
        return _sums(door.calls() for door in self._doors.values())

    def statistics(self) -> Mapping[tuple[str, ...], DoorStatistics]:
        """Return the traffic, by service, of all shards. From any thread."""
        return _sums(door.statistics() for door in self._doors.values())

    def held(self) -> DoorHeld:
        """Return the bytes that are held, and the limits, of all shards. From any thread."""
        return reduce(_sum, (door.held() for door in self._doors.values()))

    def _refusal(self, name: str) -> grpc.RpcMethodHandler[Any, Any]:
        names = ", ".join(self._doors)
        text = f"name one of the shards {names} in the metadata {SHARD_FIELD.decode()}"
        error = BadArgument(text, field=SHARD_FIELD.decode(), value=name[:SHOWN_SIZE_MAX], limit=names)
        status = status_of(error, BASE_TABLE)

        async def refuse(_requests: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
            details = ((STATUS_METADATA_KEY, status.SerializeToString()),)
            await context.abort(code_of(status), status.message, details)

        return grpc.stream_stream_rpc_method_handler(refuse)


def _sums(parts: Iterable[Mapping[tuple[str, ...], F]]) -> Mapping[tuple[str, ...], F]:
    """Return the sums of the figures with the same labels."""
    sums: dict[tuple[str, ...], F] = {}
    for part in parts:
        for labels, figures in part.items():
            before = sums.get(labels)
            sums[labels] = figures if before is None else _sum(before, figures)
    return sums


def _sum(one: F, other: F) -> F:
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in one.__struct_fields__})
