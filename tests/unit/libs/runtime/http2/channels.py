# SPDX-License-Identifier: Apache-2.0
"""Channels as services make them, and the metadata of calls."""

from typing import Any

import grpc

from libs.runtime.peer.connection import Peer
from libs.runtime.settings import PeerConfig
from libs.runtime.trust.tokens import TokenFile, ensure_local_token, find_local_token
from tests.support.patience import LIMIT_S


def said() -> Any:
    """The metadata of a call: the token of this machine, and values of both kinds."""
    return (("authorization", f"Bearer {find_local_token(())}"), ("a", "b"), ("b-bin", b"\0\xff"))


def channel_to(target: str, kind: Any = "http2", reconnect_ms_max: int = 1_000) -> Any:
    """A channel as services make it, or as a door makes it with the kind `relaying`."""
    token = TokenFile("token", ensure_local_token())
    if kind == "relaying":
        peer = Peer(name="peer", config=PeerConfig(target=target), token=token)
        return peer.connect_relaying(reconnect_ms_max=reconnect_ms_max).channel
    peer = Peer(name="peer", config=PeerConfig(target=target, channel=kind), token=token)
    return peer.connect(interceptors=(), reconnect_ms_max=reconnect_ms_max).channel


async def code_of(method: Any) -> grpc.StatusCode:
    """The status code of a call."""
    try:
        await method(b"", timeout=LIMIT_S, metadata=said())
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK
