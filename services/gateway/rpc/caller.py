# SPDX-License-Identifier: Apache-2.0
"""Caller: who makes a call, by its metadata. Nothing is kept of it: any gateway serves any call."""

import asyncio
import functools
import ipaddress
from dataclasses import dataclass
from typing import Any, Self

import grpc
from reput.common.v1.message_pb2 import Host

from services.gateway.engine.names import shown_name, stored_name
from services.gateway.errors import Refused
from services.gateway.rpc.wire import messaging_pb2 as wire

Context = grpc.aio.ServicerContext[bytes, bytes]

NODE = ("HTTP", "NODE_JS")
"""What clients for Node.js call their language."""
CLIENT_ID_SIZE_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Caller:
    """See the module."""

    client: str
    language: str
    namespace: str
    peer: str

    @classmethod
    def of(cls, context: Context) -> Self:
        """Return who makes this call. Raises Refused."""
        said = metadata_of(context)
        client = said.get("x-mq-client-id", "")
        if not client or len(client) > CLIENT_ID_SIZE_MAX:
            raise Refused("CLIENT_ID_REQUIRED", f"the metadata x-mq-client-id must be 1 to {CLIENT_ID_SIZE_MAX} bytes")
        return cls(client, said.get("x-mq-language", ""), said.get("x-mq-namespace", ""), context.peer())

    @property
    def is_node(self) -> bool:
        """Whether the client is that for Node.js."""
        return self.language.upper() in NODE

    def topic(self, resource: wire.Resource) -> str:
        """Return what the store calls a topic. Raises Refused."""
        return self._stored(resource, "ILLEGAL_TOPIC", "topic")

    def group(self, resource: wire.Resource) -> str:
        """Return what the store calls a group. Raises Refused."""
        return self._stored(resource, "ILLEGAL_CONSUMER_GROUP", "group")

    def shown(self, stored: str) -> wire.Resource:
        """Return a topic as the client knows it."""
        return wire.Resource(resource_namespace=self.namespace, name=shown_name(self.namespace, stored))

    def host(self) -> Host | None:
        """Return where the client is, None if it is no address."""
        return _host_of(self.peer)

    def _stored(self, resource: wire.Resource, code: str, what: str) -> str:
        if not resource.name:
            raise Refused(code, f"the {what} must have a name")
        return stored_name(resource.resource_namespace or self.namespace, resource.name)


@functools.lru_cache(1_024)
def _host_of(peer: str) -> Host | None:
    """Return the host that a peer is by gRPC's name of it. It is the same object for all calls of a connection."""
    address, _, port = peer.partition(":")[2].rpartition(":")
    try:
        packed = ipaddress.ip_address(address.strip("[]").partition("%")[0]).packed
    except ValueError:
        return None
    return Host(address=packed, port=int(port))


def metadata_of(context: Context) -> dict[str, str]:
    """Return what a caller says beside its request, as text."""
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


class Ending:
    """Ends what waits when the gateway stops."""

    def __init__(self) -> None:
        self._works: set[asyncio.Future[Any]] = set()
        self._is_over = False

    def end(self) -> None:
        """Let nothing wait any more."""
        self._is_over = True
        for work in self._works:
            work.cancel()

    def cancels(self, work: "asyncio.Future[Any]") -> None:
        """Let work be cancelled when the gateway stops."""
        if self._is_over:
            work.cancel()
        self._works.add(work)
        work.add_done_callback(self._works.discard)

    async def unless(self, work: "asyncio.Future[Any]") -> bool:
        """Wait for work, and return whether it is done. It is cancelled when the gateway stops, or the caller goes."""
        self.cancels(work)
        try:
            await asyncio.wait([work])
            return not work.cancelled()
        finally:
            work.cancel()
