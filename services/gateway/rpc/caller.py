# SPDX-License-Identifier: Apache-2.0
"""Caller: the client that makes a call, by the call's metadata. It is not kept: any gateway serves any call."""

import asyncio
import functools
import ipaddress
from typing import Any, Self

import grpc
from msgspec import Struct
from reput.common.v1.message_pb2 import Host

from libs.runtime.trust.rights.rules import Subject
from services.gateway.engine.names import shown_name, stored_name
from services.gateway.errors import Refused
from services.gateway.rpc.wire import messaging_pb2 as wire

Context = grpc.aio.ServicerContext[bytes, bytes]

NODE = ("HTTP", "NODE_JS")
"""Names that clients for Node.js give for their language."""
CLIENT_ID_SIZE_MAX = 1_024


class Caller(Struct, frozen=True):
    """The client that makes a call."""

    client: str
    language: str
    namespace: str
    peer: str
    subject: Subject | None = None
    """The caller's subject, where a rights file is set."""

    @classmethod
    def of(cls, context: Context) -> Self:
        """Return the client that makes this call. Raises Refused."""
        said = metadata_of(context)
        client = said.get("x-mq-client-id", "")
        if not client or len(client) > CLIENT_ID_SIZE_MAX:
            raise Refused("CLIENT_ID_REQUIRED", f"the metadata x-mq-client-id must be 1 to {CLIENT_ID_SIZE_MAX} bytes")
        return cls(client, said.get("x-mq-language", ""), said.get("x-mq-namespace", ""), context.peer())

    @property
    def is_node(self) -> bool:
        """Whether the client is a client for Node.js."""
        return self.language.upper() in NODE

    def topic(self, resource: wire.Resource) -> str:
        """Return the store's name of a topic. Raises Refused."""
        return self._stored(resource, "ILLEGAL_TOPIC", "topic")

    def group(self, resource: wire.Resource) -> str:
        """Return the store's name of a group. Raises Refused."""
        return self._stored(resource, "ILLEGAL_CONSUMER_GROUP", "group")

    def shown(self, stored: str) -> wire.Resource:
        """Return a topic by the client's name for it."""
        return wire.Resource(resource_namespace=self.namespace, name=shown_name(self.namespace, stored))

    def host(self) -> Host | None:
        """Return the client's address and port, None if the peer has no IP address."""
        return _host_of(self.peer)

    def _stored(self, resource: wire.Resource, code: str, what: str) -> str:
        if not resource.name:
            raise Refused(code, f"the {what} must have a name")
        return stored_name(resource.resource_namespace or self.namespace, resource.name)


@functools.lru_cache(1_024)
def _host_of(peer: str) -> Host | None:
    """Return the host of gRPC's name of a peer. The object is shared by the calls of a connection."""
    address, _, port = peer.partition(":")[2].rpartition(":")
    try:
        packed = ipaddress.ip_address(address.strip("[]").partition("%")[0]).packed
    except ValueError:
        return None
    return Host(address=packed, port=int(port))


def metadata_of(context: Context) -> dict[str, str]:
    """Return the text metadata of a call."""
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


class WorkCanceller:
    """Cancels waiting work when the gateway stops."""

    def __init__(self) -> None:
        self._works: set[asyncio.Future[Any]] = set()
        self._is_over = False

    def end(self) -> None:
        """Cancel all waiting work, and further work at once."""
        self._is_over = True
        for work in self._works:
            work.cancel()

    def cancels(self, work: "asyncio.Future[Any]") -> None:
        """Cancel this work when the gateway stops."""
        if self._is_over:
            work.cancel()
        self._works.add(work)
        work.add_done_callback(self._works.discard)

    async def unless(self, work: "asyncio.Future[Any]") -> bool:
        """Wait for work, and return whether it is done. A stop of the gateway, or of the caller, cancels it."""
        self.cancels(work)
        try:
            await asyncio.wait([work])
            return not work.cancelled()
        finally:
            work.cancel()
